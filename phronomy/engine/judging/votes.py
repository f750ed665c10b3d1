"""Votes where the agent's code is: a decision on a request that asks for people is one vote, until enough of them are there.

An edit asks twice: whoever gives it must be one of those who may decide on what was shown, and what the edit came to asks for its own
people. Their votes begin with this one; votes on the old arguments are void.

The async functions are the sync ones with `async` and `await`; a test compares them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from phronomy.engine.judging.brief import lapse, tool_context
from phronomy.engine.ledger import now
from phronomy.engine.run import Runner
from phronomy.errors import NotAnApprover
from phronomy.foundation.ids import new_id
from phronomy.records.approvers import Approvers, Vote
from phronomy.records.calls import REQUEST, Call, Decided, Judgement, Voted
from phronomy.records.checkpoint import pending_of
from phronomy.records.decisions import NO_BRIEF, PendingApproval
from phronomy.records.principals import Principal
from phronomy.rules.votes import VOTES, governed, in_force, voting_time
from phronomy.stores.derived.voters import Voter, as_requested, is_decisive, vote_by, voters, with_votes
from phronomy.stores.native import in_store
from phronomy.tools.approvers import Asked, People, aholds_at, holds_at


def voted(runner: Runner, call: Call, outcome: Decided, by: Principal | None, at: datetime) -> Decided | Voted:
    """The outcome of a decision, or that of a vote if it takes more of them. Raises `NotAnApprover`, `AlreadyVoted`."""
    shown, next_one = asked_about(runner, call, outcome)
    if not (governed(shown) or governed(next_one)) or outcome.decision.kind not in VOTES:
        return outcome
    store = runner.ledger.store
    is_same = next_one is shown
    shown = as_requested(store, shown)
    next_one = shown if is_same else as_requested(store, next_one)
    found = voters(store, shown, by)
    held = {each.person.id: levels_held(runner, call, shown, each.person, at) for each in found}
    vote = vote_on(shown, next_one, found, outcome, held, at)
    if next_one is not shown:
        held = {each.person.id: levels_held(runner, call, next_one, each.person, at) for each in found}
        vote = vote_after_edit(next_one, found, outcome, held, at, vote)
    assert vote is not None, "one of the two asks for people"
    enough = not governed(next_one) or is_decisive(store, next_one, vote)
    return counted(runner, call, outcome, next_one, vote, enough=enough)


async def avoted(runner: Runner, call: Call, outcome: Decided, by: Principal | None, at: datetime) -> Decided | Voted:
    """As `voted`."""
    shown, next_one = asked_about(runner, call, outcome)
    if not (governed(shown) or governed(next_one)) or outcome.decision.kind not in VOTES:
        return outcome
    store = runner.ledger.store
    is_same = next_one is shown
    shown = await in_store(store, as_requested, store, shown)
    next_one = shown if is_same else await in_store(store, as_requested, store, next_one)
    found = await in_store(store, voters, store, shown, by)
    held = {each.person.id: await alevels_held(runner, call, shown, each.person, at) for each in found}
    vote = vote_on(shown, next_one, found, outcome, held, at)
    if next_one is not shown:
        held = {each.person.id: await alevels_held(runner, call, next_one, each.person, at) for each in found}
        vote = vote_after_edit(next_one, found, outcome, held, at, vote)
    assert vote is not None, "one of the two asks for people"
    enough = not governed(next_one) or await in_store(store, is_decisive, store, next_one, vote)
    return counted(runner, call, outcome, next_one, vote, enough=enough)


def asked_about(runner: Runner, call: Call, outcome: Decided) -> tuple[PendingApproval, PendingApproval]:
    """The request that was shown, and that for what the call is now: the same, unless its arguments were edited."""
    shown = pending_of(call, runner.state.path, runner.state.speaker, runner.state.requester)
    edited = outcome.edited
    if edited is None or edited.digest is None or edited.digest == call.digest:
        return shown, shown
    brief = edited.brief or NO_BRIEF
    # It is asked about anew, so the time at which others take over begins anew as well.
    return shown, shown.evolve(
        digest=edited.digest,
        args=edited.__dict__["args"],
        approvers=brief.approvers,
        policy=brief.policy,
        votes=(),
        requested_at=edited.requested_at or outcome.decision.at,
    )


def levels_held(runner: Runner, call: Call, item: PendingApproval, person: Principal, at: datetime) -> tuple[int, ...]:
    """The places of the levels whose predicate holds for this person, by the code that asks now."""
    found: list[int] = []
    for place, level in enumerate(governed(item)):
        effective = in_force(level, item.requested_at, voting_time(at, item.requested_at, item.votes))
        people = people_of(runner, call, level) if effective.predicates else []
        if people and holds_at(people, effective, asked_of(runner, call, item, person)):
            found.append(place)
    return tuple(found)


async def alevels_held(
    runner: Runner, call: Call, item: PendingApproval, person: Principal, at: datetime
) -> tuple[int, ...]:
    """As `levels_held`."""
    found: list[int] = []
    for place, level in enumerate(governed(item)):
        effective = in_force(level, item.requested_at, voting_time(at, item.requested_at, item.votes))
        people = people_of(runner, call, level) if effective.predicates else []
        if people and await aholds_at(people, effective, asked_of(runner, call, item, person)):
            found.append(place)
    return tuple(found)


def asked_of(runner: Runner, call: Call, item: PendingApproval, person: Principal) -> Asked:
    """The arguments of the predicates that say if a person may decide."""
    tool = runner.spec.tool(call)
    assert tool is not None, "the predicates are those of the tool, and of the policies about it"
    return person, item, tool_context(runner, call, tool, item.digest)


def people_of(runner: Runner, call: Call, level: Approvers) -> list[People]:
    """The approvals of the agent's code that this level of a request is of. If the code has changed since, there are none."""
    tool = runner.spec.tool(call)
    asked = level.evolve(authors=(), known=())  # of them the code says nothing
    reviews = [] if tool is None else [tool.review, *(rule.review for rule in runner.rules_about(call, tool))]
    return [each.people for each in reviews if each is not None and each.people.is_of(asked)]


def vote_on(
    shown: PendingApproval,
    next_one: PendingApproval,
    found: Sequence[Voter],
    outcome: Decided,
    held: Mapping[str, tuple[int, ...]],
    at: datetime,
) -> Vote | None:
    """The vote on what was shown; None if that asks for nobody. Raises `NotAnApprover`, `AlreadyVoted`."""
    return (
        vote_by(shown, found, outcome.decision, at=at, digest=next_one.digest, levels=held) if governed(shown) else None
    )


def vote_after_edit(
    item: PendingApproval,
    found: Sequence[Voter],
    outcome: Decided,
    held: Mapping[str, tuple[int, ...]],
    at: datetime,
    given: Vote | None,
) -> Vote:
    """The vote on what an edit came to, of somebody who could decide on what was shown, and so may put the edit to others."""
    # Votes on the old arguments are void, so nobody has voted on these.
    found = [replace(each, voted=None) for each in found]
    try:
        return vote_by(item, found, outcome.decision, at=at, digest=item.digest, levels=held)
    except NotAnApprover:
        # It counts nowhere, and says in the record who has edited. What a predicate said was of the levels of the old request.
        if given is not None:
            return given.evolve(levels=())
        anybody = item.evolve(approvers=(Approvers(),))
        return vote_by(anybody, found, outcome.decision, at=at, digest=item.digest)


def counted(
    runner: Runner, call: Call, outcome: Decided, item: PendingApproval, vote: Vote, *, enough: bool
) -> Decided | Voted:
    """The outcome with the votes in it: a decision if they are enough, else one more vote."""
    decision = with_votes(outcome.decision, item, vote)
    # What is edited in a run inside a call is taken down to it with the decision, and put to the others there.
    if enough:
        return outcome.evolve(decision=decision)
    if outcome.edited is not None and runner.state.path != "" and call.status != "answered":
        return outcome.evolve(decision=decision.evolve(to_check=True))
    # Checked with the agent's code, the answer counts as a vote: the request waits on, under an id that nobody has answered.
    if outcome.edited is None and call.status != "answered":
        return Voted(decision=decision)
    return Voted(decision=decision, request=request_for_others(runner, call, outcome.edited))


def request_for_others(runner: Runner, call: Call, edited: Judgement | None) -> Judgement:
    """The request that others are to decide: of the call as it is, or with other arguments."""
    if edited is None:  # the same request: its time runs on
        facts = {name: getattr(call, name) for name in ("tool", "digest", "repeatable", *REQUEST)}
        request = Judgement(id=call.id, verdict="pend", **facts)
        return request.evolve(args=call.__dict__["args"], pending_id=new_id("pend"))
    request = edited.evolve(verdict="pend", why=call.why or "approval")
    at = now(runner.ledger.store)
    expires_at, on_expiry = lapse(runner, runner.spec.tool(call), request.brief, at)
    return request.evolve(pending_id=new_id("pend"), requested_at=at, expires_at=expires_at, on_expiry=on_expiry)


def handed_on(child: Runner, outcome: Decided, call: Call | None) -> Decided | Voted:
    """The outcome of a decision that is handed down to a run inside a call: of an edit that others have yet to approve, a vote."""
    decision, edited = outcome.decision, outcome.edited
    if edited is None or call is None or not decision.to_check:
        return outcome
    return Voted(decision=decision.evolve(to_check=False), request=request_for_others(child, call, edited))

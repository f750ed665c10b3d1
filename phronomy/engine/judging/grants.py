"""Standing grants at a call: what people have let through before, in place of asking them now.

A grant gives nobody more than its givers have. Its use is their votes, cast at this moment: each giver is looked up as if they stood
here, with the roles that they have now, and the votes have to be enough for everyone who asks about the call. What they come to is a
decision in the record like any other, and names the grant.

The use is written before the decision, under the id of the request. If the process dies in between, the request finds its use again
when the run is carried on. So a grant lets through no more calls than it has uses. One whose uses are not limited counts such a call
twice.

The async functions are the sync ones with `async` and `await`; a test compares them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import partial

from phronomy.engine.judging.brief import tool_context
from phronomy.engine.judging.votes import alevels_held, levels_held
from phronomy.engine.ledger import now
from phronomy.engine.run import Runner
from phronomy.errors import AlreadyVoted, NotAnApprover
from phronomy.records.calls import Call, Decided
from phronomy.records.checkpoint import pending_of
from phronomy.records.decisions import Decision, PendingApproval
from phronomy.records.grants import Given, Grant, covers
from phronomy.records.principals import Principal, id_of_person
from phronomy.rules.votes import governed
from phronomy.stores.derived.grants import grants_for
from phronomy.stores.derived.people import as_recorded
from phronomy.stores.derived.voters import Voter, as_requested, is_decisive, vote_of, voters_left
from phronomy.stores.native import in_store
from phronomy.tools.approval import GrantCondition
from phronomy.tools.tool import Tool

CHANNEL = "grant"
"""The channel of a decision by a grant."""


def granted(runner: Runner, call: Call) -> Decided | None:
    """The decision by a standing grant that covers a call; None if there is none, and people are asked."""
    tool = runner.spec.tool(call)
    store = runner.ledger.store
    item = as_requested(store, item_of(runner, call))
    for grant in grants_for(store, item.agent or "", item.tool_name, run_id=runner.state.run_id, pending_id=item.id):
        if tool is None or not is_for(runner, item, grant) or not condition_holds(runner, call, tool, grant):
            continue
        at = now(store)
        voted, is_given = item, False
        for given in grant.givers:
            if not (found := voters_left(store, voted, giver_of(given))):
                continue  # removed since: nobody knows what they may do now
            is_given = True
            held = {each.person.id: levels_held(runner, call, voted, each.person, at) for each in found}
            voted = with_giver(voted, grant, found, held, at)
        enough = (is_given and not governed(item)) or (
            voted.votes != () and is_decisive(store, before_last(voted), voted.votes[-1])
        )
        if enough and store.use_grant(grant, item.id) is not None:
            return decision_by(runner, voted, grant, at)
    return None


async def agranted(runner: Runner, call: Call) -> Decided | None:
    """As `granted`."""
    tool = runner.spec.tool(call)
    store = runner.ledger.store
    item = await in_store(store, as_requested, store, item_of(runner, call))
    for grant in await in_store(
        store, grants_for, store, item.agent or "", item.tool_name, run_id=runner.state.run_id, pending_id=item.id
    ):
        if tool is None or not is_for(runner, item, grant) or not await acondition_holds(runner, call, tool, grant):
            continue
        at = now(store)
        voted, is_given = item, False
        for given in grant.givers:
            if not (found := await in_store(store, voters_left, store, voted, giver_of(given))):
                continue  # removed since: nobody knows what they may do now
            is_given = True
            held = {each.person.id: await alevels_held(runner, call, voted, each.person, at) for each in found}
            voted = with_giver(voted, grant, found, held, at)
        enough = (is_given and not governed(item)) or (
            voted.votes != () and await in_store(store, is_decisive, store, before_last(voted), voted.votes[-1])
        )
        if enough and await in_store(store, store.use_grant, grant, item.id) is not None:
            return decision_by(runner, voted, grant, at)
    return None


def giver_of(given: Given) -> Principal:
    """Who gave a part of a grant. In the rows of earlier releases, the part alone says that they were listed."""
    return as_recorded(given.principal, given.listed)


def item_of(runner: Runner, call: Call) -> PendingApproval:
    """The request that people would be asked."""
    return pending_of(call, runner.state.path, runner.state.speaker, runner.state.requester)


def is_for(runner: Runner, item: PendingApproval, grant: Grant) -> bool:
    """Whether a grant is for this call, as far as the grant itself says. One that nobody may limit by its answers is for none."""
    # What may not be approved by a person who is asked is not approved by one who was asked before.
    if item.answers and "approve" not in item.answers:
        return False
    return covers(
        grant,
        agent=item.agent or "",
        tool=item.tool,
        args_text=item.json_text("args"),
        run_id=runner.state.run_id,
        thread_id=runner.state.thread_id,
        requester_id=id_of_person(item.requester) if item.requester is not None else None,
    )


def condition_holds(runner: Runner, call: Call, tool: Tool, grant: Grant) -> bool:
    """Whether the predicate that a grant names holds for the arguments, at each level that knows it, and one does."""
    if grant.condition is None:
        return True
    found = list(conditions(runner, call, tool, grant.condition))
    shown = partial(tool.shown, tool.bind(call.json_text("args")))
    context = tool_context(runner, call, tool)
    held = [each.covers(shown, context) for each in found]
    return bool(held) and all(held)


async def acondition_holds(runner: Runner, call: Call, tool: Tool, grant: Grant) -> bool:
    """As `condition_holds`."""
    if grant.condition is None:
        return True
    found = list(conditions(runner, call, tool, grant.condition))
    shown = partial(tool.shown, tool.bind(call.json_text("args")))
    context = tool_context(runner, call, tool)
    held = [await each.acovers(shown, context) for each in found]
    return bool(held) and all(held)


def conditions(runner: Runner, call: Call, tool: Tool, name: str) -> Iterator[GrantCondition]:
    """The predicates that are registered under this name, with the tool and with the policies about it."""
    for review in (tool.review, *(rule.review for rule in runner.rules_about(call, tool))):
        if review is not None and name in review.conditions:
            yield review.conditions[name]


def with_giver(
    item: PendingApproval,
    grant: Grant,
    found: list[Voter],
    held: Mapping[str, tuple[int, ...]],
    at: datetime,
) -> PendingApproval:
    """The request with the vote of one of those who gave the grant, if they may vote on it."""
    if not governed(item):
        return item
    try:
        vote = vote_of(
            item,
            found,
            "approve",
            at=at,
            channel=CHANNEL,
            reason=None,
            digest=item.digest,
            levels=held,
            grant=grant.id,
        )
    # They could not approve this call, so their grant does not either.
    except (NotAnApprover, AlreadyVoted):
        return item
    return item.evolve(votes=(*item.votes, vote))


def before_last(item: PendingApproval) -> PendingApproval:
    """The request as it was before the last vote on it."""
    return item.evolve(votes=item.votes[:-1])


def decision_by(runner: Runner, item: PendingApproval, grant: Grant, at: datetime) -> Decided:
    """The decision that a grant makes, in the name of the giver whose vote was the last."""
    last = item.votes[-1] if item.votes else None
    decision = Decision(
        pending_id=item.id,
        digest=item.digest,
        kind="approve",
        path=runner.state.path,
        by=last.by if last is not None else grant.givers[-1].principal,
        channel=CHANNEL,
        at=at,
    )
    behalf_of = last.behalf_of if last is not None else None
    return Decided(decision=decision.evolve(votes=item.votes, behalf_of=behalf_of, grant=grant.id, policy=item.policy))

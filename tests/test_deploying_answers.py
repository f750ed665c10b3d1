"""Deploying a change while runs wait: results that people give, skips, times that are over, and standing grants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, Literal

import pytest
from deploy_scenes import ASKED, DEPLOYS, PLACES, Deploy, Ran, stopped
from drivers import Driver, run
from places import Place
from selection import scaled
from tables import each

from phronomy import AgentChanged, Approval, ApprovalExpired, Approve, Checkpoint, Respond, Skip
from phronomy.records.decisions import Answer
from phronomy.stores.base import Store
from phronomy.workers import Worker

OnExpiry = Literal["reject", "cancel", "stay"]
Decides = Callable[[Driver, Any, Checkpoint, Answer], Any]

GOES_ON: Final = (
    *("nothing", "description", "Args", "bound loosened", "default changed"),
    *("type widened", "approval tightened", "instructions"),
)
"""Changes after which an approval runs what was shown."""

AGAIN: Final = ("new optional parameter", "type changed")
"""Changes after which an approval is asked for again."""

NO_MORE: Final = (
    *("bound tightened", "new required parameter", "parameter removed", "parameter renamed"),
    *("type narrowed", "tool gone", "tool renamed", "approval loosened"),
)
"""Changes after which an approval is refused."""

SOME: Final = ("nothing", "type changed", "parameter removed", "tool gone", "approval loosened")
"""A change for each way in which the agent looks at what waits: the default."""

EVERY: Final = scaled(SOME, sweep=(*GOES_ON, *AGAIN, *NO_MORE))
RESULT: Final = "I paid it by hand."


@pytest.fixture
def clock() -> list[float]:
    """The time of the store."""
    return [1_000.0]


@pytest.fixture
def store(place: Place, clock: list[float]) -> Store:
    """A store of each kind, at this time."""
    return place.open(clock=lambda: clock[0])


def resumed(driver: Driver, agent: Any, asked: Checkpoint, answer: Answer) -> Any:
    """The run after a decision of the agent."""
    return driver.resume(agent, asked, decisions={asked.pending[0].id: answer}, by="ada")


def worked(driver: Driver, agent: Any, asked: Checkpoint, answer: Answer) -> Any:
    """The run after a decision with the store alone, which a worker carries out."""
    item = asked.pending[0]
    agent.store.decide(item.id, answer, by="ada", digest=item.digest)
    return carried_out(agent, asked)


def carried_out(agent: Any, asked: Checkpoint) -> Any:
    """The run after a worker has looked at it. Raises its error."""
    [done] = run(Worker(agent).carry_out(asked.run_id))
    if done.error is not None:
        raise done.error
    return done.result


def gated(change: str, gate: Any) -> Deploy:
    """A change of a tool with this gate before it, and after it, unless the change is one of the gate."""
    deploy = DEPLOYS[change]
    return replace(deploy, gate_before=gate, gate=gate if deploy.gate is True else deploy.gate)


def told(store: Store, asked: Checkpoint) -> tuple[str, str | None]:
    """The end of a request, and of the decision on it, as everybody can read it."""
    found = store.request(asked.pending[0].id)
    return found.status, found.decision.kind if found.decision is not None else None


# Results in place of the tool


@pytest.mark.parametrize("decides", [resumed, worked])
@pytest.mark.parametrize("where", PLACES)
@each("change", scaled(("nothing", "default changed", *AGAIN), sweep=(*GOES_ON, *AGAIN)))
def test_a_result_in_place_of_the_tool_runs_nothing(
    driver: Driver, store: Store, where: Any, decides: Decides, change: str
) -> None:
    """Also where an approval would be asked for again: the arguments that the tool would read run nothing."""
    ran: Ran = []
    deploy = DEPLOYS[change]
    asked = driver.invoke(where(ran, deploy.before, store), "Refund it").checkpoint
    result = decides(driver, where(ran, deploy, store), asked, Respond(content=RESULT))
    assert (result.status, ran, told(store, asked)) == ("completed", [], ("settled", "respond"))
    assert store.head(asked.run_id)[1] == result.checkpoint


@pytest.mark.parametrize("where", PLACES)
@each("change", scaled(("parameter removed", "tool gone", "approval loosened"), sweep=NO_MORE))
def test_a_result_for_a_call_that_cannot_run_is_refused_and_kept(
    driver: Driver, store: Store, where: Any, change: str
) -> None:
    ran: Ran = []
    deploy = DEPLOYS[change]
    old = where(ran, deploy.before, store)
    asked = driver.invoke(old, "Refund it").checkpoint
    new = where(ran, deploy, store)
    before = store.head(asked.run_id)
    with pytest.raises(AgentChanged, match="Nothing was consumed"):
        resumed(driver, new, asked, Respond(content=RESULT))
    assert (store.head(asked.run_id), told(store, asked)) == (before, ("pending", None))
    with pytest.raises(AgentChanged):
        worked(driver, new, asked, Respond(content=RESULT))
    assert (ran, told(store, asked)) == ([], ("decided", "respond"))
    # An agent that has the tool as it was carries it out, and nobody is asked a second time.
    assert carried_out(old, asked).status == "completed"
    assert (ran, told(store, asked)) == ([], ("settled", "respond"))


# Skips


@pytest.mark.parametrize("decides", [resumed, worked])
@each("change", (*GOES_ON, *AGAIN, *NO_MORE))
def test_a_skip_at_a_breakpoint_needs_nothing_of_the_tool(
    driver: Driver, store: Store, decides: Decides, change: str
) -> None:
    """As a rejection: nothing runs."""
    ran: Ran = []
    deploy = replace(DEPLOYS[change], gate_before=False)
    asked = driver.invoke(stopped(ran, deploy.before, store), "Refund it").checkpoint
    assert asked.pending[0].why == "breakpoint"
    result = decides(driver, stopped(ran, deploy, store), asked, Skip())
    assert (result.status, ran, told(store, asked)) == ("completed", [], ("settled", "skip"))
    assert result.messages[2].settlement == "skipped"


@pytest.mark.parametrize("decides", [resumed, worked])
def test_a_call_that_went_on_at_a_breakpoint_needs_the_approval_of_a_new_gate(
    driver: Driver, store: Store, decides: Decides
) -> None:
    ran: Ran = []
    deploy = Deploy(gate_before=False)
    asked = driver.invoke(stopped(ran, deploy.before, store), "Refund it").checkpoint
    new = stopped(ran, deploy, store)
    result = decides(driver, new, asked, Approve())
    [again] = result.checkpoint.pending
    assert (result.status, ran, again.why, told(store, asked)) == (
        "suspended",
        [],
        "approval",
        ("asked_again", "approve"),
    )
    assert store.request(asked.pending[0].id).asked_again == again.id
    assert driver.resume(new, result.checkpoint, approved=True, by="ada").status == "completed"
    assert ran == [{**ASKED, "note": "none"}]


# Times that are over


@pytest.mark.parametrize("way", ["recover", "worker", "late"])
@pytest.mark.parametrize("where", PLACES)
@each(("on_expiry", "change"), [(how, change) for how in ("reject", "cancel") for change in EVERY])
def test_a_time_that_is_over_needs_nothing_of_the_agent(
    driver: Driver, store: Store, clock: list[float], where: Any, way: str, on_expiry: OnExpiry, change: str
) -> None:
    """Somebody who decides too late is told so, also where the agent has changed: the answer would not have run."""
    ran: Ran = []
    deploy = gated(change, Approval(expires=60, on_expiry=on_expiry))
    asked = driver.invoke(where(ran, deploy.before, store), "Refund it").checkpoint
    clock[0] += 61
    new = where(ran, deploy, store)
    if way == "recover":
        driver.recover(new, asked.run_id)
    elif way == "worker":
        carried_out(new, asked)
    else:
        with pytest.raises(ApprovalExpired, match=asked.pending[0].id):
            driver.resume(new, asked, approved=True, by="ada")
    ended = {"reject": "completed", "cancel": "cancelled"}[on_expiry]
    assert (store.head(asked.run_id)[1].ended, ran, told(store, asked)) == (ended, [], ("settled", "expire"))


@pytest.mark.parametrize("where", PLACES)
@each("change", EVERY)
def test_a_request_that_stays_is_judged_as_any_other(
    driver: Driver, store: Store, clock: list[float], where: Any, change: str
) -> None:
    ran: Ran = []
    deploy = gated(change, Approval(expires=60, on_expiry="stay"))
    asked = driver.invoke(where(ran, deploy.before, store), "Refund it").checkpoint
    clock[0] += 61
    new = where(ran, deploy, store)
    assert driver.recover(new, asked.run_id).status == "suspended" and told(store, asked) == ("pending", None)
    if change in NO_MORE:
        with pytest.raises(AgentChanged, match="Nothing was consumed"):
            driver.resume(new, asked, approved=True, by="ada")
        assert (ran, told(store, asked)) == ([], ("pending", None))
        return
    result = driver.resume(new, asked, approved=True, by="ada")
    if change in AGAIN:
        assert (result.status, ran, told(store, asked)) == ("suspended", [], ("asked_again", "approve"))
        result = driver.resume(new, result.checkpoint, approved=True, by="ada")
    assert (result.status, len(ran)) == ("completed", 1)


@pytest.mark.parametrize("where", PLACES)
@each("change", EVERY)
def test_an_approval_in_time_outlasts_the_time(
    driver: Driver, store: Store, clock: list[float], where: Any, change: str
) -> None:
    """The worker comes after the deploy, and after the time is over: what was decided is decided."""
    ran: Ran = []
    deploy = gated(change, Approval(expires=60))
    old = where(ran, deploy.before, store)
    asked = driver.invoke(old, "Refund it").checkpoint
    [item] = asked.pending
    store.decide(item.id, Approve(), by="ada", digest=item.digest)
    clock[0] += 61
    new = where(ran, deploy, store)
    if change in NO_MORE:
        with pytest.raises(AgentChanged):
            carried_out(new, asked)
        assert (ran, told(store, asked)) == ([], ("decided", "approve"))
        new = old
    result = carried_out(new, asked)
    if change in AGAIN:
        # With all of its time: nobody could have answered the new request before.
        [again] = result.checkpoint.pending
        assert (ran, told(store, asked)) == ([], ("asked_again", "approve"))
        assert again.expires_at is not None and again.expires_at.timestamp() == clock[0] + 60
        result = driver.resume(new, result.checkpoint, approved=True, by="ada")
    assert (result.status, len(ran)) == ("completed", 1)


# Standing grants


@pytest.mark.parametrize("where", [place for place in PLACES if place is not stopped])
@each(
    ("change", "runs"),
    [
        *((change, True) for change in ("nothing", "description", "instructions")),
        *((change, False) for change in ("Args", "bound loosened", "default changed", "type widened", *AGAIN)),
        ("parameter removed", False),
    ],
)
def test_a_grant_covers_the_tool_as_it_was_granted(
    driver: Driver, store: Store, where: Any, change: str, runs: bool
) -> None:
    """Another schema is another tool: people are asked, and the grant is left as it is."""
    ran: Ran = []
    store = store.for_tenant(change)
    deploy = gated(change, Approval(standing=True))
    old = where(ran, deploy.before, store)
    asked = driver.invoke(old, "Refund it").checkpoint
    [item] = asked.pending
    store.grant_like(item.id, by="ada", digest=item.digest, scope="tenant", exactly=False, uses=2)
    result = driver.invoke(where(ran, deploy, store), "Refund it")
    assert (result.status, len(ran)) == (("completed", 1) if runs else ("suspended", 0))
    assert [each.count for each in store.grants()] == [1 if runs else 0]
    # The tool as it was is covered as before, beside the new one, and the request that waits is decided by people.
    assert driver.invoke(old, "Refund it").status == "completed"
    assert told(store, asked) == ("pending", None)


@pytest.mark.parametrize("where", [place for place in PLACES if place is not stopped])
@each("change", AGAIN)
def test_a_call_that_is_asked_again_is_covered_by_no_grant_of_the_old_tool(
    driver: Driver, store: Store, where: Any, change: str
) -> None:
    ran: Ran = []
    store = store.for_tenant(change)
    deploy = gated(change, Approval(standing=True))
    asked = driver.invoke(where(ran, deploy.before, store), "Refund it").checkpoint
    [item] = asked.pending
    store.grant_like(item.id, by="ada", digest=item.digest, scope="tenant", exactly=False, uses=2)
    new = where(ran, deploy, store)
    result = driver.resume(new, asked, approved=True, by="ada")
    [again] = result.checkpoint.pending
    assert (result.status, ran, told(store, asked)) == ("suspended", [], ("asked_again", "approve"))
    # A grant like the new request covers the next call of the tool as it is now.
    store.grant_like(again.id, by="ada", digest=again.digest, scope="tenant", exactly=False, uses=2)
    assert driver.invoke(new, "Refund it").status == "completed"
    assert ran == [again.args] and store.request(again.id).status == "pending"

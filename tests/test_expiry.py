"""A human has so long to decide; what nobody decided in time is settled as expired, and never runs."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from drivers import DRIVERS, PATIENCE, STORES, STREAMED, Driver, open_kind, outline

from phronomy import Agent, ConfigurationError, tool
from phronomy.errors import ApprovalExpired, CheckpointAlreadyResumed, ToolDefinitionError
from phronomy.records.decisions import Approve, Reject, Respond
from phronomy.stores import Claim
from phronomy.stores.base import Store
from phronomy.testing import ScriptedModel, call, say


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Store:
    return open_kind(request.param, tmp_path, clock=clock)


@pytest.fixture(params=(*DRIVERS, *STREAMED), ids=str)
def driver(request: pytest.FixtureRequest) -> Driver:
    found: Driver = request.param
    return found


class Desk:
    """A desk whose refunds must be approved within ten minutes."""

    def __init__(self, driver: Driver, store: Store, *replies: Any, **options: Any) -> None:
        self.done: list[int] = []

        def refund(order: int) -> str:
            """Refund an order."""
            self.done.append(order)
            return f"refunded {order}"

        limits = {name: options.pop(name) for name in ("approval_timeout", "on_expiry") if name in options}
        gated = tool(requires_approval=True, **({"approval_timeout": 600.0} | limits))(driver.function(refund))
        model = ScriptedModel([*replies])
        self.agent: Agent[Any, str] = Agent(name="desk", model=model, tools=[gated], store=store, **options)


REFUND = say("", call("refund", {"order": 1042}, id="call_9"))


def test_the_request_says_when_it_lapses(driver: Driver, store: Store, clock: Clock) -> None:
    suspended = driver.invoke(Desk(driver, store, REFUND).agent, "Refund 1042")
    (asked,) = suspended.checkpoint.pending
    assert asked.expires_at is not None
    assert (asked.expires_at - asked.requested_at).total_seconds() == 600
    assert asked.on_expiry == "reject"


def test_a_decision_in_time_counts(driver: Driver, store: Store, clock: Clock) -> None:
    desk = Desk(driver, store, REFUND, "Done.")
    suspended = driver.invoke(desk.agent, "Refund 1042")
    clock.now += 599.9
    assert driver.resume(desk.agent, suspended.checkpoint, approved=True).output == "Done."
    assert desk.done == [1042]


@pytest.mark.parametrize("answer", [Approve(), Reject(reason="no"), Respond(content="it is refunded")], ids=str)
def test_a_decision_that_comes_too_late_does_not_count(driver: Driver, store: Store, clock: Clock, answer: Any) -> None:
    """The run is not parked for ever: it goes on from the call that expired, and whoever decided is told so."""
    desk = Desk(driver, store, REFUND, "Nobody answered, so I did nothing.")
    suspended = driver.invoke(desk.agent, "Refund 1042")
    (asked,) = suspended.checkpoint.pending
    clock.now += 600

    with pytest.raises(ApprovalExpired, match=asked.id) as late:
        driver.resume(desk.agent, suspended.checkpoint, decisions={asked.id: answer}, by="alice")

    assert desk.done == []
    assert late.value.pending_ids == (asked.id,)
    assert late.value.result.output == "Nobody answered, so I did nothing."
    assert outline(late.value.result)[2] == ("tool (expired): Nobody decided on this call in time, so it was not run.")
    (decision,) = late.value.result.checkpoint.decisions
    assert (decision.kind, decision.by) == ("expire", None)
    assert [record.kind for record in store.audit()] == ["expire"]


def test_after_it_expired_nobody_can_approve_it(driver: Driver, store: Store, clock: Clock) -> None:
    desk = Desk(driver, store, REFUND, "Nothing was done.")
    suspended = driver.invoke(desk.agent, "Refund 1042")
    clock.now += 601
    with pytest.raises(ApprovalExpired):
        driver.resume(desk.agent, suspended.checkpoint, approved=True)
    clock.now -= 601  # whatever the clock says then
    with pytest.raises(CheckpointAlreadyResumed) as told:
        driver.resume(desk.agent, suspended.checkpoint, approved=True)
    assert told.value.decision is not None and told.value.decision.kind == "expire"
    assert desk.done == []


def test_resume_without_a_decision_goes_on_once_it_has_lapsed(driver: Driver, store: Store, clock: Clock) -> None:
    desk = Desk(driver, store, REFUND, "Nothing was done.")
    suspended = driver.invoke(desk.agent, "Refund 1042")
    clock.now += 600
    assert driver.resume(desk.agent, suspended.checkpoint).output == "Nothing was done."
    assert desk.done == []


def test_what_expires_may_end_the_run(driver: Driver, store: Store, clock: Clock) -> None:
    desk = Desk(driver, store, REFUND, on_expiry="cancel")
    suspended = driver.invoke(desk.agent, "Refund 1042")
    clock.now += 600
    with pytest.raises(ApprovalExpired) as late:
        driver.resume(desk.agent, suspended.checkpoint, approved=True)
    ended = late.value.result
    assert ended.status == "cancelled" and desk.done == []
    assert ended.checkpoint.ending is not None
    assert ended.checkpoint.ending.reason == "nobody decided on refund in time"
    assert [message.settlement for message in ended.messages if message.role == "tool"] == ["expired"]


def test_with_stay_it_may_still_be_decided(driver: Driver, store: Store, clock: Clock) -> None:
    desk = Desk(driver, store, REFUND, "Done.", on_expiry="stay")
    suspended = driver.invoke(desk.agent, "Refund 1042")
    clock.now += 6000
    assert driver.call(desk.agent, "recover_all") == []
    assert driver.resume(desk.agent, suspended.checkpoint, approved=True).output == "Done."
    assert desk.done == [1042]


def test_of_two_requests_the_one_in_time_is_carried_out(driver: Driver, store: Store, clock: Clock) -> None:
    done: list[str] = []

    def quick(n: int) -> str:
        """Wants a quick answer."""
        done.append("quick")
        return "quick"

    def slow(n: int) -> str:
        """Takes any time."""
        done.append("slow")
        return "slow"

    gates = [
        tool(requires_approval=True, approval_timeout=60)(driver.function(quick)),
        tool(requires_approval=True)(driver.function(slow)),
    ]
    model = ScriptedModel([say("", call("quick", {"n": 1}), call("slow", {"n": 2})), "One of two."])
    agent: Agent[Any, str] = Agent(name="desk", model=model, tools=gates, store=store)
    suspended = driver.invoke(agent, "Both")
    first, second = suspended.checkpoint.pending
    assert second.expires_at is None
    clock.now += 61
    with pytest.raises(ApprovalExpired) as late:
        driver.resume(agent, suspended.checkpoint, decisions={first.id: Approve(), second.id: Approve()})
    assert late.value.pending_ids == (first.id,)
    assert late.value.result.output == "One of two."
    assert done == ["slow"]


def test_the_agent_says_how_long_where_the_tool_does_not(driver: Driver, store: Store, clock: Clock) -> None:
    desk = Desk(driver, store, REFUND, "Nothing.", approval_timeout=None)
    assert driver.invoke(desk.agent, "Refund 1042").checkpoint.pending[0].expires_at is None
    gated = tool(requires_approval=True)(driver.function(wipe))
    model = ScriptedModel([say("", call("wipe", {"path": "/"}))])
    agent: Agent[Any, str] = Agent(
        name="ops", model=model, tools=[gated], store=store, approval_timeout=5.0, on_expiry="cancel"
    )
    (asked,) = driver.invoke(agent, "Wipe it").checkpoint.pending
    assert asked.expires_at is not None
    assert (asked.expires_at - asked.requested_at).total_seconds() == 5
    assert asked.on_expiry == "cancel"


def wipe(path: str) -> str:
    """Wipe a path."""
    raise AssertionError("nobody approved it")


def test_recover_all_settles_what_nobody_decided(driver: Driver, store: Store, clock: Clock) -> None:
    desk = Desk(driver, store, REFUND, REFUND, "Nothing was done.", "Nothing was done either.")
    first = driver.invoke(desk.agent, "Refund 1042")
    clock.now += 300
    second = driver.invoke(desk.agent, "Refund 1042 again")
    assert driver.call(desk.agent, "recover_all") == []
    clock.now += 300
    (one,) = driver.call(desk.agent, "recover_all")
    assert one.run_id == first.run_id and one.result.output == "Nothing was done."
    assert [waiting.run_id for waiting in store.pending()] == [second.run_id]
    clock.now += 300
    (two,) = driver.call(desk.agent, "recover_all")
    assert two.run_id == second.run_id and two.result.status == "completed"
    assert driver.call(desk.agent, "recover_all") == []
    assert desk.done == [] and store.pending() == []


def test_a_fork_gives_the_whole_time_again(driver: Driver, store: Store, clock: Clock) -> None:
    desk = Desk(driver, store, REFUND, "Nothing.", "Done.")
    suspended = driver.invoke(desk.agent, "Refund 1042")
    clock.now += 601
    with pytest.raises(ApprovalExpired):
        driver.resume(desk.agent, suspended.checkpoint, approved=True)
    forked = driver.fork(desk.agent, suspended.checkpoint)
    (asked,) = forked.pending
    assert asked.expires_at is not None
    assert asked.expires_at.timestamp() == clock.now + 600
    assert driver.resume(desk.agent, forked, approved=True).output == "Done."
    assert desk.done == [1042]


def test_cancelling_a_run_that_has_lapsed_ends_it(driver: Driver, store: Store, clock: Clock) -> None:
    desk = Desk(driver, store, REFUND)
    suspended = driver.invoke(desk.agent, "Refund 1042")
    clock.now += 601
    assert driver.cancel(desk.agent, suspended.checkpoint).status == "cancelled"
    assert desk.done == [] and store.pending() == []


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), "5", True])
def test_a_timeout_that_is_none_is_refused(value: Any) -> None:
    with pytest.raises(ToolDefinitionError, match="approval_timeout"):
        tool(approval_timeout=value)(wipe)
    with pytest.raises(ConfigurationError, match="approval_timeout"):
        Agent(model=ScriptedModel([]), approval_timeout=value).invoke("x")


def test_an_expiry_that_is_none_is_refused() -> None:
    with pytest.raises(ToolDefinitionError, match="on_expiry"):
        tool(on_expiry="approve")(wipe)  # type: ignore[call-overload]
    with pytest.raises(ConfigurationError, match="on_expiry"):
        Agent(model=ScriptedModel([]), on_expiry="approve").invoke("x")  # type: ignore[typeddict-item]


def test_a_worker_that_holds_the_run_settles_what_lapsed_meanwhile(store: Store, clock: Clock) -> None:
    """The decision comes too late while another call of the same reply still runs in its worker."""
    entered, leave = threading.Event(), threading.Event()

    @tool
    def slow(n: int) -> str:
        """Takes until it may leave."""
        entered.set()
        assert leave.wait(PATIENCE)
        return "slow"

    gated = tool(requires_approval=True, approval_timeout=60)(wipe)
    model = ScriptedModel([say("", call("wipe", {"path": "/"}), call("slow", {"n": 1})), "Not wiped."])
    agent: Agent[Any, str] = Agent(name="ops", model=model, tools=[gated, slow], store=store)
    worker = threading.Thread(target=lambda: agent.invoke("Wipe it"))
    worker.start()
    assert entered.wait(PATIENCE)
    (waiting,) = store.pending()
    clock.now += 20
    store.renew(claim_of(store, waiting.branch_id))
    clock.now += 20
    store.renew(claim_of(store, waiting.branch_id))
    clock.now += 20
    with pytest.raises(ApprovalExpired) as late:
        agent.resume(waiting.checkpoint_id, approved=True)
    assert late.value.result.status == "running"
    leave.set()
    worker.join(PATIENCE)
    ended = store.wait(waiting.run_id, timeout=PATIENCE)
    assert [message.settlement for message in ended.messages if message.role == "tool"] == ["expired", "completed"]
    assert [record.kind for record in store.audit()] == ["expire"]


def claim_of(store: Store, branch_id: str) -> Claim:
    branch = store.lineage(branch_id=branch_id).branch
    assert branch.owner is not None
    return Claim(branch_id=branch.id, run_id=branch.run_id, owner=branch.owner, fence=branch.fence)

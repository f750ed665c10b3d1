"""A decision on a run that another worker holds is left for that worker, and is carried out whatever becomes of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from drivers import ASYNC, SYNC, Around, Driver, run
from places import Place

from phronomy import Agent, Approve, Checkpoint, tool
from phronomy.stores.base import Store
from phronomy.stores.rows import Append, Branch, Claim
from phronomy.testing import ScriptedModel, call, say

TWO = say("", call("pay", {"order": 1}, id="call_1"), call("pay", {"order": 2}, id="call_2"))

THREE = say("", *(call("pay", {"order": number}, id=f"call_{number}") for number in (1, 2, 3)))


class Desk:
    """Pays orders, each when somebody has approved it."""

    def __init__(self, driver: Driver, place: Place) -> None:
        self.driver = driver
        self.place = place
        self.paid: list[int] = []
        self.meanwhile: Callable[[], object] = lambda: None

    def agent(self, store: Store, *replies: Any) -> Agent[Any, str]:
        """The agent as a process of its own makes it."""

        def pay(order: int) -> str:
            """Pay an order."""
            self.paid.append(order)
            self.meanwhile()
            return f"paid {order}"

        gated = tool(requires_approval=True)(self.driver.function(pay))
        return Agent(name="desk", model=ScriptedModel([*replies]), tools=[gated], store=store)

    def decide(self, agent: Agent[Any, str], asked: Checkpoint, place: int) -> Any:
        """Approve one of the calls that wait."""
        return self.driver.resume(agent, asked, decisions={asked.pending[place].id: Approve()}, by="ann")


@pytest.fixture
def desk(driver: Driver, place: Place) -> Desk:
    return Desk(driver, place)


class Between(Around):
    """Something happens before a change is left for whoever holds the branch."""

    happens: Callable[[Append], None]

    def append(self, change: Append) -> Branch:
        if change.holder is not None:
            self.happens(change)
        return super().append(change)


def held(store: Store, asked: Checkpoint) -> Claim:
    """The claim of another worker, which holds the run now."""
    branch = store.head(asked.branch_id)[0]
    after = store.append(Append(branch_id=branch.id, seq=branch.seq, take="other", lease=60.0))
    return Claim(branch_id=after.id, run_id=after.run_id, owner="other", fence=after.fence)


def test_a_worker_that_lets_go_meanwhile_is_left_nothing(desk: Desk) -> None:
    """It wrote nothing, so the log is as long as it was: whoever decided carries it out then."""
    plain = desk.place.open()
    asked = desk.driver.invoke(desk.agent(plain, TWO), "Pay both").checkpoint
    other = held(plain, asked)
    store = Between(desk.place.open())
    store.happens = lambda change: plain.release(other, "suspended")

    result = desk.decide(desk.agent(store), asked, 0)
    assert (result.status, desk.paid) == ("suspended", [1])
    result = desk.decide(desk.agent(plain, "Both are paid."), asked, 1)
    assert (result.output, desk.paid) == ("Both are paid.", [1, 2])
    assert [(record.kind, record.by.id) for record in plain.audit() if record.by] == [("approve", "ann")] * 2


def test_nor_is_one_whose_place_another_has_taken(desk: Desk) -> None:
    plain = desk.place.open()
    asked = desk.driver.invoke(desk.agent(plain, TWO), "Pay both").checkpoint
    claims = [held(plain, asked)]
    store = Between(desk.place.open())

    def taken_over(change: Append) -> None:
        assert change.holder == claims[-1]
        if len(claims) < 3:
            plain.release(claims[-1], "suspended")
            claims.append(held(plain, asked))

    store.happens = taken_over
    assert desk.decide(desk.agent(store), asked, 0).status == "running"
    branch = plain.head(asked.branch_id)[0]
    assert (len(claims), branch.owner, branch.handed) == (3, "other", branch.seq)
    assert [row.pending_id for row in plain.pending_rows()] == [asked.pending[1].id]
    assert desk.paid == []


def test_a_decision_that_a_worker_did_not_take_up_is_found_whatever_the_status(desk: Desk) -> None:
    """It let the run go as waiting, or failed, after the decision was left for it."""
    for number, status in enumerate(("suspended", "failed", "running"), 1):
        store = desk.place.open()
        asked = desk.driver.invoke(desk.agent(store, TWO), "Pay both").checkpoint
        other = held(store, asked)
        worker = desk.agent(store)
        assert desk.decide(worker, asked, 0).status == "running"
        assert desk.driver.call(worker, "recover_all") == [], "the other worker holds it"
        store.release(other, status)  # type: ignore[arg-type]

        (found,) = desk.driver.call(worker, "recover_all")
        assert (found.run_id, found.result.status, desk.paid) == (asked.run_id, "suspended", [1] * number)
        assert desk.driver.call(worker, "recover_all") == []
        desk.driver.cancel(worker, asked.run_id)


def test_what_a_worker_has_done_that_leaves_is_kept_though_a_decision_comes_in_between(desk: Desk) -> None:
    """It saves what has settled when it lets go, and somebody else writes first."""
    plain = desk.place.open()
    asked = desk.driver.invoke(desk.agent(plain, THREE), "Pay all").checkpoint
    told: list[str] = []

    class Between(Around):
        """Once one call has settled, a decision is left before what came of the other is saved."""

        settled = 0

        def append(self, change: Append) -> Branch:
            if any(json.loads(entry.body).get("type") == "settled" for entry in change.entries):
                self.settled += 1
                if self.settled == 2:
                    told.append(apart(lambda: desk.decide(desk.agent(plain), asked, 2)).status)
            return super().append(change)

    approved = {item.id: Approve() for item in asked.pending[:2]}
    leave_at_the_first_result(desk, desk.agent(Between(desk.place.open())), asked, approved)
    assert (told, sorted(desk.paid)) == (["running"], [1, 2])

    (found,) = desk.driver.call(desk.agent(plain, "All are paid."), "recover_all")
    assert (found.result.output, sorted(desk.paid)) == ("All are paid.", [1, 2, 3])


class Signal(BaseException):
    """What Ctrl-C and a cancelled task are: no error of the run."""


class Interrupted(Around):
    """A signal comes as soon as the next write is stored."""

    armed = False

    def append(self, change: Append) -> Branch:
        after = super().append(change)
        if self.armed:
            self.armed = False
            raise Signal
        return after


def test_a_recovery_that_is_interrupted_as_it_begins_leaves_the_decision_to_the_next(desk: Desk) -> None:
    now = [1_800_000_000.0]
    plain = desk.place.open(clock=lambda: now[0])
    asked = desk.driver.invoke(desk.agent(plain, TWO), "Pay both").checkpoint
    held(plain, asked)
    assert desk.decide(desk.agent(plain), asked, 0).status == "running"
    now[0] += 100  # the other worker is lost

    store = Interrupted(plain)
    for _ in range(2):
        store.armed = True
        with pytest.raises(Signal):
            desk.driver.call(desk.agent(store), "recover_all")
        assert (store.armed, desk.paid) == (False, [])
        now[0] += 100

    (found,) = desk.driver.call(desk.agent(plain), "recover_all")
    assert (found.result.status, desk.paid) == ("suspended", [1])
    assert desk.driver.call(desk.agent(plain), "recover_all") == []


class Killed(Around):
    """That of a worker which is killed: it lets nothing go."""

    def release(self, claim: Claim, status: Any = None) -> None:
        pass


def test_a_run_whose_worker_was_lost_is_found_again_when_its_recovery_is_interrupted(desk: Desk) -> None:
    """Nobody was told what became of it: whoever recovers is not the one who has asked for it."""
    now = [1_800_000_000.0]
    plain = desk.place.open(clock=lambda: now[0])
    with pytest.raises(Signal):
        desk.driver.invoke(desk.agent(Killed(plain), Signal()), "Pay")
    for _ in range(2):
        now[0] += 100
        with pytest.raises(Signal):
            desk.driver.call(desk.agent(plain, Signal()), "recover_all")
        assert desk.driver.call(desk.agent(plain), "recover_all") == [], "its lease is not over"
    now[0] += 100
    (found,) = desk.driver.call(desk.agent(plain, ConnectionError("away")), "recover_all")
    assert found.error is not None
    now[0] += 100
    assert desk.driver.call(desk.agent(plain), "recover_all") == [], "whoever recovered was told that it failed"


def leave_at_the_first_result(desk: Desk, agent: Agent[Any, str], asked: Checkpoint, approved: Any) -> None:
    """Decide, and watch no longer than until one call has settled: what is under way is waited for."""

    async def watch() -> None:
        async with agent.astream(asked, decisions=approved) as events:
            async for event in events:
                if event.type == "tool_call_settled":
                    return

    if desk.driver.is_async:
        run(watch())
        return
    with agent.stream(asked, decisions=approved) as events:
        for event in events:
            if event.type == "tool_call_settled":
                return


def test_a_worker_that_leaves_owes_what_was_decided_meanwhile(desk: Desk) -> None:
    """Whoever decided was told that it runs. However far the worker came that was watched: when its lease is over, it is found."""
    number, left = 0, True
    while left:
        number += 1
        now = [1_700_000_000.0]
        store = desk.place.open(tenant=f"leaves {number}", clock=lambda now=now: now[0])
        desk.paid.clear()
        asked = desk.driver.invoke(desk.agent(store, TWO), "Pay both").checkpoint
        told: list[str] = []

        def meanwhile(store: Store = store, asked: Checkpoint = asked, told: list[str] = told) -> None:
            desk.meanwhile = lambda: None
            told.append(apart(lambda: desk.decide(desk.agent(store), asked, 1)).status)

        desk.meanwhile = meanwhile
        left = watch_some(desk, desk.agent(store, "Both are paid."), asked, number)
        if told:
            assert told == ["running"]
            now[0] += store.lease + 1
            desk.driver.call(desk.agent(store, "Both are paid."), "recover_all")
            (branch,) = store.branches()
            assert (branch.status, desk.paid) == ("completed", [1, 2]), f"after {number} events"
    assert number > 5


def watch_some(desk: Desk, agent: Agent[Any, str], asked: Checkpoint, most: int) -> bool:
    """Approve the first call, and watch so many events of what follows: whether there were more."""
    return desk.driver.watched(agent, asked, most, decisions={asked.pending[0].id: Approve()})


def test_a_decider_of_one_driver_and_a_worker_of_the_other(place: Place) -> None:
    """While the worker runs the first call, the second is approved: the worker runs that as well."""
    for worker, decider in ((SYNC, ASYNC), (ASYNC, SYNC)):
        desk = Desk(worker, place)
        store = place.open()
        asked = worker.invoke(desk.agent(store, TWO), "Pay both").checkpoint
        other = Desk(decider, place)
        told = []

        def meanwhile(
            desk: Desk = desk, other: Desk = other, asked: Checkpoint = asked, told: list[Any] = told
        ) -> None:
            desk.meanwhile = lambda: None
            told.append(apart(lambda: other.decide(other.agent(place.open()), asked, 1)).status)

        desk.meanwhile = meanwhile
        result = desk.decide(desk.agent(store, "Both are paid."), asked, 0)
        assert (result.output, desk.paid, other.paid, told) == ("Both are paid.", [1, 2], [], ["running"])
        assert store.head(asked.branch_id)[0].handed is None


def team(desk: Desk, store: Store, handler: Any = None) -> Agent[Any, str]:
    """An agent that pays the first order, and has another pay two more."""
    inner = desk.agent(store)
    options = {} if handler is None else {"on_approval_required": desk.driver.function(handler)}
    both = [call("pay", {"order": 2}), call("pay", {"order": 3})]
    clerk: Agent[Any, str] = Agent(
        name="clerk", model=ScriptedModel.by_turn([both, "Paid."]), tools=inner.tools, **options
    )
    first = [call("pay", {"order": 1}), call("clerk", {"input": "Pay two"})]
    model = ScriptedModel.by_turn([first, "All are paid."])
    return Agent(name="desk", model=model, tools=[*inner.tools, clerk.as_tool()], store=store)


def told(store: Store) -> list[Any]:
    """Who decided, by the audit, and on a call of which agent."""
    return sorted((record.by.id if record.by else record.channel, record.agent) for record in store.audit())


def test_a_decision_inside_a_call_has_one_line_in_the_audit_whoever_carries_it_out(desk: Desk) -> None:
    store = desk.place.open()
    asked = desk.driver.invoke(team(desk, store), "Pay all").checkpoint
    assert [item.path for item in asked.pending] == ["", "1.1", "1.1"]

    # It is left for a worker that is in the first call.
    desk.meanwhile = lambda: (setattr(desk, "meanwhile", lambda: None), apart(lambda: approve(1)))

    def approve(place: int) -> Any:
        return desk.decide(team(desk, desk.place.open()), asked, place)

    assert (approve(0).status, desk.paid) == ("suspended", [1, 2])
    assert told(store) == [("ann", "clerk"), ("ann", "desk")]

    # It is left for a worker that does not take it up.
    other = held(store, asked)
    assert approve(2).status == "running"
    store.release(other, "suspended")
    (found,) = desk.driver.call(team(desk, store), "recover_all")
    assert (found.result.output, desk.paid) == ("All are paid.", [1, 2, 3])
    assert told(store) == [("ann", "clerk"), ("ann", "clerk"), ("ann", "desk")]


def test_what_a_handler_answers_is_in_the_audit_though_a_decision_comes_in_between(desk: Desk) -> None:
    store = desk.place.open()

    def handler(name: str, args: Any) -> bool:
        if args["order"] == 2:
            checkpoint = store.head(store.branches()[0].id)[1]
            apart(lambda: desk.decide(team(desk, desk.place.open()), checkpoint, 0))
        return True

    result = desk.driver.invoke(team(desk, store, handler), "Pay all")
    assert (result.output, sorted(desk.paid)) == ("All are paid.", [1, 2, 3])
    assert told(store) == [("ann", "desk"), ("handler", "clerk"), ("handler", "clerk")]


def apart(work: Callable[[], Any]) -> Any:
    """What it gives in a thread of its own, where no event loop runs."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()

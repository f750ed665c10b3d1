"""Reminders and escalations: each is told in order, at least once, and once if nothing fails; never of what is decided or expired."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from approver_scenes import ANN, BOB, CAT, PAID, START, Desk
from drivers import PATIENCE, Driver, run, until
from places import Place

from phronomy import Agent, Announcements, Approval, Approve, Escalate, Principal, tool
from phronomy.errors import ApprovalExpired
from phronomy.events import RequestChanged
from phronomy.records.calls import Reminded
from phronomy.records.decisions import PendingApproval
from phronomy.stores.base import Store
from phronomy.testing import ScriptedModel, call
from phronomy.testing.store_contract.base import race
from phronomy.workers import Worker

HOUR = 3600.0
DAY = 24 * HOUR
HEAD = Principal(id="hanna", roles=("head",))

WATCHED = Approval(
    by="lead",
    needed=2,
    remind=[HOUR, 4 * HOUR],
    escalate=[Escalate(after=2 * HOUR, by="head"), Escalate(after=8 * HOUR, by="chair")],
    expires=2 * DAY,
)
STEPS = [("reminded", HOUR), ("escalated", 2 * HOUR), ("reminded", 4 * HOUR), ("escalated", 8 * HOUR)]


class Board(Announcements):
    """Notes what it is told of requests; raises as often as it is asked to."""

    def __init__(self, faults: int = 0) -> None:
        self.events: list[RequestChanged] = []
        self.faults = faults

    def on_request(self, event: RequestChanged) -> None:
        if self.faults:
            self.faults -= 1
            raise OSError("the board is away")
        self.events.append(event)

    @property
    def told(self) -> list[str]:
        return [each.what for each in self.events]

    @property
    def keys(self) -> list[str]:
        return [each.key for each in self.events]


class Watch(Desk):
    """A desk with a board, at which workers come by."""

    def __init__(self, driver: Driver, place: Place) -> None:
        super().__init__(driver, place)
        self.board = Board()

    def agent(self, gate: Any = WATCHED, **options: Any) -> Any:
        return super().agent(gate, **{"announcements": [self.board], **options})

    def at(self, seconds: float) -> Watch:
        """So many seconds after the beginning."""
        self.till.now = START + seconds
        return self

    def due(self) -> list[float | None]:
        """After how many seconds something is to be done about each request."""
        times = [row.expires_at for row in self.store.pending_rows()]
        return [at - START if at is not None else None for at in times]

    def noted(self) -> list[Reminded]:
        """The steps in the log of the one branch."""
        (branch,) = self.store.branches()
        return [each for each in self.store.head(branch.id)[1].journal if isinstance(each, Reminded)]


@pytest.fixture
def desk(driver: Driver, place: Place) -> Watch:
    return Watch(driver, place)


def test_each_step_is_told_once_in_order_when_it_is_due(desk: Watch) -> None:
    item = desk.asked(WATCHED)
    assert (desk.board.told, desk.due()) == (["asked"], [HOUR])
    expected = ["asked"]
    for (what, at), following in zip(STEPS, [*(at for _, at in STEPS[1:]), 2 * DAY], strict=True):
        desk.at(at - 0.001).work()
        assert desk.board.told == expected
        desk.at(at).work()
        expected = [*expected, what]
        assert (desk.board.told, desk.due()) == (expected, [following])
        desk.work()
        assert desk.board.told == expected
        waits = desk.request(item)
        assert waits is not None and waits.reminded == len(expected) - 1
    assert len(set(desk.board.keys)) == 5
    assert [each.request.reminded for each in desk.board.events] == [0, 1, 2, 3, 4]
    assert {each.request.id for each in desk.board.events} == {item.id}
    assert [(each.what, each.step, each.at.timestamp() - START) for each in desk.noted()] == [
        (what, step, at) for step, (what, at) in enumerate(STEPS)
    ]
    desk.at(2 * DAY).work()
    assert (desk.board.told[5:], desk.paid, desk.due()) == (["expired"], [], [])


def test_after_a_day_all_that_is_due_is_told_in_order(desk: Watch) -> None:
    item = desk.asked(WATCHED)
    desk.at(DAY).work()
    assert desk.board.told == ["asked", *(what for what, _ in STEPS)]
    assert len(set(desk.board.keys)) == 5 and desk.due() == [2 * DAY]
    assert {each.at.timestamp() - START for each in desk.noted()} == {DAY}
    # Whom it was escalated to may decide, and the run goes on from a log with reminders in it.
    assert desk.vote(item, HEAD) == "counted"
    assert desk.vote(item, BOB) == "approved"
    assert desk.board.told[5:] == ["voted", "decided", "carried_out"] and desk.paid == [PAID]


def test_nothing_is_told_after_the_end(desk: Watch) -> None:
    """Of what has expired, or was decided, before a worker came by."""
    desk.asked(WATCHED)
    desk.at(2 * DAY).work()
    assert desk.board.told == ["asked", "expired"]

    other = Watch(desk.driver, desk.place)
    item = other.asked(WATCHED)
    other.vote(item, BOB)
    other.vote(item, CAT, alone=True)
    other.at(DAY).work()
    assert other.board.told == ["asked", "voted", "decided", "carried_out"]
    other.work()
    assert len(other.board.told) == 4 and other.paid == [PAID]


def test_a_decision_with_an_old_checkpoint_counts_after_reminders(desk: Watch) -> None:
    desk.made = desk.agent(Approval(remind=HOUR))
    suspended = desk.driver.invoke(desk.made, "Pay").checkpoint
    desk.at(HOUR).work()
    assert desk.driver.resume(desk.made, suspended, approved=True).status == "completed"
    assert desk.board.told == ["asked", "reminded", "decided", "carried_out"] and desk.paid == [PAID]


def test_what_could_not_be_told_is_told_again(desk: Watch) -> None:
    item = desk.asked(WATCHED)
    desk.board.faults = 1
    desk.at(HOUR).work()
    # The worker tells what is left at the end of the same look.
    assert desk.board.told == ["asked", "reminded"]
    desk.board.faults = 2
    desk.at(2 * HOUR).work()
    assert desk.board.told == ["asked", "reminded"]
    waits = desk.request(item)
    assert waits is not None and waits.reminded == 2, "it is noted, and is to be told"
    desk.at(4 * HOUR).work()
    assert desk.board.told == ["asked", "reminded", "escalated", "reminded"]
    desk.work()
    assert len(desk.board.told) == len(set(desk.board.keys)) == 4


def test_of_two_who_listen_the_first_may_be_told_again_under_the_same_key(desk: Watch) -> None:
    second = Board()
    desk.asked(WATCHED, announcements=[desk.board, second])
    second.faults = 1
    desk.at(HOUR).work()
    assert desk.board.told == ["asked", "reminded", "reminded"] and len(set(desk.board.keys)) == 2
    assert second.told == ["asked", "reminded"]


def test_of_two_workers_at_one_moment_one_notes_each_step(desk: Watch) -> None:
    """Both may tell it, under one key."""
    desk.asked(WATCHED)
    desk.at(DAY)
    agents = [desk.agent() for _ in range(4)]
    found = race([lambda each=each: desk.driver.call(each, "recover_all") for each in agents])  # type: ignore[misc]
    assert found == [[]] * 4
    assert [each.step for each in desk.noted()] == [0, 1, 2, 3]
    told: dict[str, str] = {each.key: each.what for each in desk.board.events}
    assert [*told.values()] == ["asked", *(what for what, _ in STEPS)]
    desk.work()
    assert [each.step for each in desk.noted()] == [0, 1, 2, 3]


def test_with_stay_only_the_reminders_are_due(desk: Watch) -> None:
    item = desk.asked(Approval(remind=[HOUR, 2 * HOUR], expires=3 * HOUR, on_expiry="stay"), requester=None)
    assert desk.due() == [HOUR]
    desk.at(4 * HOUR).work()
    assert (desk.board.told, desk.due()) == (["asked", "reminded", "reminded"], [None])
    desk.at(DAY).work()
    assert desk.vote(item, ANN) == "approved"
    assert desk.board.told == ["asked", "reminded", "reminded", "decided", "carried_out"]


def test_a_vote_in_between_changes_no_step(desk: Watch) -> None:
    for alone in (False, True):
        watch = Watch(desk.driver, desk.place)
        item = watch.asked(WATCHED)
        watch.at(HOUR).work()
        assert watch.vote(item, BOB, alone=alone) == "counted"
        assert watch.due()[-1] == 2 * HOUR
        watch.at(4 * HOUR).work()
        waits = watch.request(item)
        assert waits is not None and (waits.reminded, len(waits.votes)) == (3, 1)
        assert watch.board.told == ["asked", "reminded", "voted", "escalated", "reminded"]
        assert len(set(watch.board.keys)) == 5
        assert watch.vote(item, CAT, alone=not alone) in ("approved", "counted")
        watch.work()
        assert watch.paid == [PAID]


def test_a_request_that_is_asked_anew_begins_anew(desk: Watch) -> None:
    """After an edit, the others are asked about other arguments: with their own time, and their own reminders."""
    item = desk.asked(WATCHED)
    desk.at(4 * HOUR).work()
    assert len(desk.board.told) == 4
    assert desk.vote(item, BOB, answer=Approve(args={"order": 1, "amount": 9})) == "approved"  # that request is over
    (edited,) = [row.approval for row in desk.store.pending()]
    assert (edited.id != item.id, edited.reminded, desk.due()) == (True, 0, [5 * HOUR])
    desk.at(6 * HOUR).work()
    mine = [each.what for each in desk.board.events if each.request.id == edited.id]
    assert mine == ["asked", "reminded", "escalated"]
    assert len(set(desk.board.keys)) == len(desk.board.keys)


def test_a_fork_is_reminded_of_by_itself(desk: Watch) -> None:
    item = desk.asked(WATCHED)
    desk.at(2 * HOUR).work()
    _, head = desk.store.head(desk.store.pending()[0].run_id)
    (forked,) = desk.driver.fork(desk.made, head).pending
    assert forked.reminded == 0
    desk.at(3 * HOUR).work()
    of = {each: [one.step for one in found] for each, found in steps_by_request(desk.store).items()}
    assert of == {item.id: [0, 1], forked.id: [0]}


def steps_by_request(store: Store) -> dict[str, list[Reminded]]:
    """The steps that are in the logs, by request."""
    found: dict[str, list[Reminded]] = {}
    for branch in store.branches():
        for each in store.head(branch.id)[1].journal:
            if isinstance(each, Reminded):
                found.setdefault(each.pending_id, []).append(each)
    return found


def test_a_request_of_a_run_inside_is_reminded_of(desk: Watch) -> None:
    clerk: Any = Agent(
        name="clerk",
        model=ScriptedModel.by_turn([call("pay", {"order": 1}), "Paid."]),
        tools=[desk.till.tool(WATCHED, desk.driver)],
    )
    lead: Any = Agent(
        name="lead",
        model=ScriptedModel.by_turn([call("clerk", {"input": "pay"}), "Passed on."]),
        tools=[clerk.as_tool(description="Pay.")],
        store=desk.open(),
        announcements=[desk.board],
    )
    desk.made = lead
    (item,) = desk.driver.invoke(lead, "Pay", requester="ann").checkpoint.pending
    assert item.path != ""
    desk.at(HOUR).work()
    assert desk.vote(item, BOB, alone=True) == "counted"
    desk.at(2 * HOUR).work()
    assert [(each.what, each.path) for each in desk.board.events] == [
        (what, item.path) for what in ("asked", "reminded", "voted", "escalated")
    ]
    waits = desk.request(item)
    assert waits is not None and (waits.reminded, len(waits.votes)) == (2, 1)
    assert desk.vote(item, HEAD) == "approved"
    assert desk.paid == [PAID]
    assert desk.board.told[4:] == ["decided", "carried_out"]
    assert len(set(desk.board.keys)) == 6


def test_two_requests_of_a_run_have_steps_of_their_own(desk: Watch) -> None:
    replies = [[call("pay", {"order": 1}), call("refund", {"order": 2}), call("plain", {"order": 3})], "Done."]
    more = [
        desk.till.tool(Approval(remind=[1.5 * HOUR, 3 * HOUR]), desk.driver, name="refund"),
        desk.till.tool(True, desk.driver, name="plain"),
    ]
    desk.made = desk.agent(WATCHED, replies=replies, more=more)
    desk.driver.invoke(desk.made, "Pay", requester="ann")
    assert desk.due() == [HOUR, 1.5 * HOUR, None]
    desk.at(2 * HOUR).work()
    told = [(each.request.tool_name, each.what) for each in desk.board.events[3:]]
    assert sorted(told) == [("pay", "escalated"), ("pay", "reminded"), ("refund", "reminded")]
    assert sorted(each or 0 for each in desk.due()) == [0, 3 * HOUR, 4 * HOUR]


@pytest.mark.parametrize("who", ["recover_all", "once", "carry_out"])
def test_every_kind_of_worker_reminds(desk: Watch, who: str) -> None:
    desk.asked(WATCHED)
    run_id = desk.store.pending()[0].run_id
    desk.at(HOUR)
    if who == "recover_all":
        assert desk.driver.call(desk.made, "recover_all") == []
    elif who == "once":
        assert run(Worker(desk.agent()).once()) == []
    else:
        assert run(Worker(desk.agent()).carry_out(run_id)) == []
    assert (desk.board.told, desk.due()) == (["asked", "reminded"], [2 * HOUR])
    assert desk.store.branches()[0].status == "suspended"


def test_a_worker_of_another_agent_does_not_remind(desk: Watch) -> None:
    desk.asked(WATCHED)
    desk.at(HOUR)
    other: Any = Agent(name="other", model=ScriptedModel([]), store=desk.open(), announcements=[desk.board])
    desk.driver.call(other, "recover_all")
    assert (desk.board.told, desk.noted()) == (["asked"], [])


def test_a_request_without_reminders_costs_no_write(desk: Watch) -> None:
    """Nor does one whose reminder is not yet due; and one that expires is found as before."""
    gates = [True, Approval(by="lead"), Approval(expires=DAY), Approval(remind=2 * DAY)]
    items = [desk.asked(gate) for gate in gates]
    assert desk.due() == [None, None, DAY, 2 * DAY]
    before = desk.store.branches()
    desk.at(DAY - 1).work()
    assert desk.store.branches() == before
    desk.at(DAY).work()
    assert [row.approval.id for row in desk.store.pending()] == [items[0].id, items[1].id, items[3].id]
    assert desk.board.told == ["asked"] * 4 + ["expired"]
    assert [each for each in desk.store.branches() if each.status == "suspended"] == [
        each for each in before if each.status == "suspended" and each.id != expired(desk, items[2])
    ]


def expired(desk: Watch, item: PendingApproval) -> str:
    """The branch of a request."""
    return str(desk.store.request(item.id).branch_id)


def test_what_expires_is_found_beside_what_is_reminded_of(desk: Watch) -> None:
    """With a limit of one, each look comes on."""
    first, second = desk.asked(WATCHED), desk.asked(Approval(expires=HOUR))
    desk.at(HOUR)
    (done,) = desk.driver.call(desk.made, "recover_all", limit=1)
    assert done.result is not None and done.result.status == "completed"
    assert sorted(desk.board.told) == ["asked", "asked", "expired", "reminded"]
    assert [row.approval.id for row in desk.store.pending()] == [first.id]
    assert desk.store.request(second.id).status == "settled"


def test_while_a_worker_holds_the_run_it_is_reminded_of_and_told_by_that_worker(place: Place, driver: Driver) -> None:
    desk = Watch(driver, place)
    entered, leave = threading.Event(), threading.Event()

    def slow(order: int) -> str:
        """Takes until it may leave."""
        entered.set()
        assert leave.wait(PATIENCE)
        return "slow"

    replies = [[call("pay", {"order": 1}), call("slow", {"order": 2})], "Done."]
    store = desk.open(lease=10 * DAY)
    agent = desk.agent(Approval(remind=HOUR), replies=replies, more=[tool(slow)], store=store)
    worker = threading.Thread(target=lambda: desk.driver.invoke(agent, "Pay"))
    worker.start()
    assert entered.wait(PATIENCE)
    (waits,) = until(lambda: [*desk.store.pending()])
    desk.made = desk.agent(Approval(remind=HOUR), replies=replies, more=[tool(slow)])
    desk.at(HOUR).work()
    desk.work()
    assert desk.due() == [None] and [each.step for each in desk.noted()] == [0]
    leave.set()
    worker.join(PATIENCE)
    assert desk.store.branches()[0].status == "suspended"
    assert desk.board.told == ["asked", "reminded"]
    assert desk.vote(waits.approval, BOB) == "approved"
    assert desk.board.told == ["asked", "reminded", "decided", "carried_out"] and desk.paid == [PAID]
    assert len(set(desk.board.keys)) == 4


def test_who_decides_too_late_has_been_reminded_in_time(desk: Watch) -> None:
    desk.made = desk.agent(Approval(remind=HOUR, expires=2 * HOUR))
    suspended = desk.driver.invoke(desk.made, "Pay").checkpoint
    desk.at(HOUR).work()
    desk.at(2 * HOUR)
    with pytest.raises(ApprovalExpired):
        desk.driver.resume(desk.made, suspended, approved=True)
    assert desk.board.told == ["asked", "reminded", "expired"] and desk.paid == []

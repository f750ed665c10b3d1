"""Waiting inside a body for several triggers: an answer, an event, a time, the end of another run; one of them decides, or all."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from drivers import PATIENCE, SYNC, Driver, run
from places import Place
from pydantic import BaseModel
from selection import scaled

from phronomy import (
    Agent,
    Announcements,
    Checkpoint,
    CheckpointAlreadyResumed,
    CheckpointNotFound,
    ConfigurationError,
    InvalidDecision,
    NotASender,
    NothingDecided,
    NotWaiting,
    Principal,
    Reject,
    Respond,
    SQLiteStore,
    StoreError,
    TriggerFired,
    TriggerSuperseded,
    tool,
)
from phronomy.cli import run as command
from phronomy.events import RequestChanged
from phronomy.graph import END, START, StateGraph
from phronomy.people import Person, StoreDirectory
from phronomy.records.calls import Arrived
from phronomy.records.checkpoint import decode
from phronomy.stores import Answered
from phronomy.stores.base import Store
from phronomy.stores.derived import listing
from phronomy.testing import ScriptedModel, call
from phronomy.testing.crash import Scene, sweep
from phronomy.triggers import (
    EventSent,
    ExternalEvent,
    Fired,
    Question,
    RunEnd,
    RunEnded,
    Timer,
    wait_for_all,
    wait_for_first,
)
from phronomy.workers import Worker


class Said(BaseModel):
    """What nodes said."""

    a: str = ""
    b: str = ""


BANK = Principal(id="bank", kind="service", roles=("payments",))
EVE = Principal(id="eve")
PAYMENT = ExternalEvent("payment", senders="payments", payload=int)


def told(fired: Fired) -> str:
    """What fired, in one word each."""
    value = fired.value.status if isinstance(fired.value, RunEnded) else fired.value
    return f"{fired.name}:{value}:{fired.by.id if fired.by is not None else None}"


class Desk:
    """Runs whose body waits. Each store that is opened is as of another process; all go by the clock of the desk."""

    def __init__(self, driver: Driver, place: Place) -> None:
        self.driver = driver
        self.place = place
        self.now = 1_700_000_000.0
        self.entered = 0

    def open(self) -> Store:
        """A store on the place."""
        return self.place.open(clock=lambda: self.now)

    def agent(
        self, wait: Callable[[], object], *, gate: bool = False, name: str = "desk", **options: Any
    ) -> Agent[Any, str]:
        """An agent whose tool waits so, in a process of its own."""

        def ship() -> str:
            """Ship."""
            self.entered += 1
            found = wait()
            return told(found) if isinstance(found, Fired) else " ".join(map(told, found.values()))  # type: ignore[attr-defined]

        tools = [tool(requires_approval=gate)(self.driver.function(ship))]
        model = ScriptedModel.by_turn([call("ship"), lambda request: request.messages[-1].text])
        return Agent(name=name, model=model, tools=tools, store=self.open(), **options)

    def asked(self, agent: Any, given: Any = "go") -> Checkpoint:
        """A run that waits."""
        result = self.driver.invoke(agent, given)
        assert result.status == "suspended"
        checkpoint: Checkpoint = result.checkpoint
        return checkpoint

    def send(self, run: Checkpoint | str, payload: object = 5, name: str = "payment", **options: Any) -> EventSent:
        """An event from a process that has the store alone."""
        run_id = run.run_id if isinstance(run, Checkpoint) else run
        sent: EventSent = self.driver.call(self.open(), "send_event", run_id, name, payload, **{"by": BANK, **options})  # type: ignore[arg-type]
        return sent

    def carried_out(self, agent: Any) -> list[Any]:
        """What the next worker comes to."""
        found = self.driver.call(agent, "recover_all")
        assert [each.error for each in found] == [None] * len(found)
        return [each.result.output if each.result.output is not None else each.result.status for each in found]


@pytest.fixture
def desk(driver: Driver, place: Place) -> Desk:
    return Desk(driver, place)


def first(**more: Any) -> Callable[[], Fired]:
    """Waits for the first of a payment, a minute, and whatever else."""
    return lambda: wait_for_first({"paid": PAYMENT, "late": Timer(after=60), **more})


def by_name(at: Checkpoint) -> dict[str, Any]:
    """What waits, by the name of the trigger."""
    return {item.trigger.name: item for item in at.pending if item.trigger is not None}


def kinds(store: Store, run_id: str) -> list[str]:
    """What the trail says of a run."""
    return [f"{each.kind}{' refused' if each.refused else ''}" for each in store.audit(run_id=run_id)]


def test_what_waits_for_people_is_told_from_the_rest(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the list and in the count, a page at a time: what a text of somebody says counts for nothing."""
    monkeypatch.setattr(listing, "BATCH", 2)
    agent = desk.agent(first(cancelled=Question('"trigger":{"kind":"event"}', answer=str)))
    runs = [desk.asked(agent) for _ in range(3)]
    store = desk.open()

    def listed(**wanted: Any) -> list[str]:
        found: list[str] = []
        after = None
        while True:
            page = desk.driver.call(store, "pending", after=after, **wanted)
            found += [each.approval.id for each in page]
            if (after := page.next) is None:
                return found

    people = [by_name(each)["cancelled"].id for each in runs]
    others = [by_name(each)[name].id for each in runs for name in ("paid", "late")]
    for limit in (None, 1, 2, 5):
        assert listed(asks_human=True, limit=limit) == people
        assert listed(asks_human=True, limit=limit, newest=True) == people[::-1]
        assert sorted(listed(asks_human=False, limit=limit)) == sorted(others)
        assert sorted(listed(limit=limit)) == sorted(people + others)
    counts = [desk.driver.call(store, "count", asks_human=each) for each in (True, False, None)]
    assert counts == [3, 6, 9] and listed(asks_human=True, run_id=runs[1].run_id) == people[1:2]
    with pytest.raises(StoreError):
        desk.driver.call(store, "pending", asks_human="yes")


# The first decides


def test_an_event_is_first_and_the_others_are_superseded(desk: Desk) -> None:
    """UIP-A10, UIP-A17, U16, U23: one request for each trigger, in order; the first decides, and the result says which."""
    agent = desk.agent(first(told=Question("Cancel?", answer=bool)))
    at = desk.asked(agent)
    assert [(item.why, item.trigger.kind, item.answers) for item in at.pending if item.trigger] == [
        ("question", "event", ("reject",)),
        ("question", "time", ("reject",)),
        ("question", "answer", ()),
    ]
    assert [item.title for item in at.pending] == ["Waits for the event 'payment'", "Waits 60 seconds", None]
    assert decode(at.model_dump_json()) == at
    waits = by_name(at)
    sent = desk.send(at)
    assert (sent.status, sent.pending_id, sent.branch_id) == ("fired", waits["paid"].id, at.branch_id)
    assert desk.open().pending() == [] and desk.entered == 1
    assert desk.carried_out(agent) == ["paid:5:bank"]
    assert desk.entered == 2
    store = desk.open()
    assert kinds(store, at.run_id) == ["supersede", "supersede", "respond"]
    late = store.request(waits["late"].id)
    assert late.decision is not None
    assert (late.decision.kind, late.decision.reason, late.status) == ("supersede", "paid fired first", "settled")


def test_each_trigger_is_told_once_and_those_that_lost_are_withdrawn(desk: Desk) -> None:
    heard: list[tuple[str, str]] = []

    class Chat(Announcements):
        """Somebody who is told of requests."""

        def on_request(self, event: RequestChanged) -> None:
            assert event.request.trigger is not None
            heard.append((event.request.trigger.name, event.what))

    agent = desk.agent(first(), announcements=[Chat()])
    at = desk.asked(agent)
    desk.send(at)
    assert desk.carried_out(agent) == ["paid:5:bank"]
    asked, decided = [("paid", "asked"), ("late", "asked")], [("late", "withdrawn"), ("paid", "decided")]
    assert heard == [*asked, *decided, ("paid", "carried_out")]


def test_a_human_is_first(desk: Desk) -> None:
    agent = desk.agent(first(told=Question("Cancel?", answer=bool)))
    at = desk.asked(agent)
    item = by_name(at)["told"]
    desk.driver.call(desk.open(), "decide", item.id, Respond(content=True), by="ann", digest=item.digest)  # type: ignore[arg-type]
    with pytest.raises(TriggerSuperseded, match="told fired first"):
        desk.send(at)
    assert desk.carried_out(agent) == ["told:True:ann"]


def test_a_human_is_first_where_the_agent_is(desk: Desk) -> None:
    agent = desk.agent(first(told=Question("Cancel?", answer=bool), also=Question("Sure?")))
    at = desk.asked(agent)
    waits = by_name(at)
    both = {waits[name].id: Respond(content=True) for name in ("told", "also")}
    with pytest.raises(InvalidDecision, match="Decide one of them"):
        desk.driver.resume(agent, at, decisions=both)
    batch = [Answered(pending_id=id, digest=_digest(at, id), answer=answer) for id, answer in both.items()]
    with pytest.raises(InvalidDecision, match="Decide one of them"):
        desk.open().decide_all(batch, by="ann", all_or_none=True)
    assert len(desk.open().pending()) == 4
    assert desk.driver.resume(agent, at, decisions={waits["told"].id: Respond(content=True)}, by="ann").output == (
        "told:True:ann"
    )
    with pytest.raises(TriggerSuperseded) as lost:
        desk.driver.resume(agent, at, decisions={waits["also"].id: Respond(content=True)}, by="bob")
    assert lost.value.decision is not None and lost.value.decision.kind == "supersede"


def _digest(at: Checkpoint, id: str) -> str:
    return next(item.digest for item in at.pending if item.id == id)


def test_a_time_is_first_whoever_comes_by(desk: Desk) -> None:
    """UIP-A12: a timer needs no process that waits. From its moment on what comes is late, though no worker was there."""
    agent = desk.agent(first(told=Question("Cancel?")))
    at = desk.asked(agent)
    assert desk.carried_out(agent) == []
    desk.now += 59
    assert desk.carried_out(agent) == []
    desk.now += 1
    with pytest.raises(TriggerSuperseded, match="late was due"):
        desk.send(at)
    item = by_name(at)["told"]
    with pytest.raises(TriggerSuperseded, match="late was due"):
        desk.open().decide(item.id, Respond(content=1), by="ann", digest=item.digest)
    assert desk.open().request(by_name(at)["late"].id).status == "pending"
    assert desk.carried_out(agent) == ["late:None:None"]
    assert desk.carried_out(agent) == []
    [decision] = [each for each in desk.open().audit() if each.kind == "respond"]
    assert (decision.by, decision.channel) == (None, "time")


def test_an_event_that_comes_after_a_question_expired_is_late(desk: Desk) -> None:
    """The wait has ended by then, whether a worker was there or not; so the record does not depend on who comes by first."""
    agent = desk.agent(first(told=Question("Cancel?")), approval_timeout=30)
    at = desk.asked(agent)
    desk.now += 30
    with pytest.raises(TriggerSuperseded, match="told was not answered in time"):
        desk.send(at)
    desk.carried_out(agent)
    assert kinds(desk.open(), at.run_id) == ["supersede", "supersede", "expire"] and desk.entered == 1


def test_what_comes_late_where_the_agent_is(desk: Desk) -> None:
    agent = desk.agent(first(told=Question("Cancel?")))
    at = desk.asked(agent)
    desk.now += 60
    waits = by_name(at)
    with pytest.raises(TriggerSuperseded, match="decided before"):
        desk.driver.resume(agent, at, decisions={waits["told"].id: Respond(content=1)}, by="ann")
    with pytest.raises(CheckpointAlreadyResumed):
        desk.driver.resume(agent, at, decisions={waits["late"].id: Reject()}, by="ann")
    with pytest.raises(TriggerFired):
        desk.open().decide(waits["late"].id, Reject(), by="ann", digest=waits["late"].digest)
    assert len(desk.open().pending()) == 3
    assert desk.driver.resume(agent, at).output == "late:None:None"  # nothing is to be decided any more


def test_a_fixed_time(desk: Desk) -> None:
    due = datetime.fromtimestamp(desk.now, UTC) + timedelta(seconds=5)
    agent = desk.agent(lambda: wait_for_first({"noon": Timer(at=due)}))
    [item] = desk.asked(agent).pending
    assert item.trigger is not None and item.trigger.due_at == due
    desk.now += 5
    assert desk.carried_out(agent) == ["noon:None:None"]


@pytest.mark.product
def test_two_workers_race_for_a_timer(desk: Desk) -> None:
    """Each run is carried on by one of them, and each timer fires once."""
    at = [desk.asked(desk.agent(first())) for _ in range(3)]
    desk.now += 60
    gate, found = threading.Barrier(2), list[str]()

    def work(agent: Agent[Any, str]) -> None:
        gate.wait(PATIENCE)
        found.extend(each.result.output for each in run(Worker(agent).once()) if each.result is not None)

    threads = [threading.Thread(target=work, args=(desk.agent(first()),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert set(found) == {"late:None:None"} and len(found) >= 3  # of one that ends in this moment, both may see the end
    assert desk.entered == 6
    assert [kinds(desk.open(), each.run_id) for each in at] == [["supersede", "respond"]] * 3


# All decide


def test_all_of_them_in_any_order_and_the_body_does_not_run_between(desk: Desk) -> None:
    """U18, UIP-A10, UIP-A15: what has fired stays, the rest waits on, and to resume without anything is an error."""
    wait = partial(wait_for_all, {"paid": PAYMENT, "late": Timer(after=60), "told": Question("Who?", answer=str)})
    agent = desk.agent(wait)
    at = desk.asked(agent)
    waits = by_name(at)
    desk.now += 60
    assert desk.carried_out(agent) == ["suspended"]
    assert [item.id for item in desk.open().head(at.branch_id)[1].pending] == [waits["paid"].id, waits["told"].id]
    desk.send(at, 7)
    assert desk.carried_out(agent) == ["suspended"]
    with pytest.raises(NothingDecided):
        desk.driver.resume(agent, at)
    assert desk.entered == 1
    result = desk.driver.resume(agent, at, decisions={waits["told"].id: Respond(content="ann")}, by="ann")
    assert (result.output, desk.entered) == ("paid:7:bank late:None:None told:ann:ann", 2)
    assert kinds(desk.open(), at.run_id) == ["respond"] * 3


def test_a_human_who_gives_up_a_wait_ends_it(desk: Desk) -> None:
    agent = desk.agent(first())
    at = desk.asked(agent)
    item = by_name(at)["paid"]
    for answer in (Respond(content=5),):
        with pytest.raises(InvalidDecision, match="it takes reject"):
            desk.open().decide(item.id, answer, by=BANK, digest=item.digest)
        with pytest.raises(InvalidDecision, match="it takes reject"):
            desk.driver.resume(agent, at, decisions={item.id: answer}, by=BANK)
    desk.open().decide(item.id, Reject(reason="no need"), by="ann", digest=item.digest)
    assert desk.open().pending() == []
    with pytest.raises(TriggerSuperseded):
        desk.send(at)
    [output] = desk.carried_out(agent)
    assert "no need" in output and desk.entered == 1
    assert kinds(desk.open(), at.run_id) == ["supersede", "reject"]


# Events


def test_an_event_that_arrives_early_is_kept(desk: Desk) -> None:
    """UIP-A11, U20: it is there already when the run begins to wait, so the caller sees the end alone."""
    agent = desk.agent(first(), gate=True)
    at = desk.asked(agent)
    sent = desk.send(at, key="k")
    assert (sent.status, sent.pending_id) == ("kept", None)
    assert desk.send(at, key="k") == sent
    assert desk.carried_out(agent) == []  # nothing is to be done yet
    assert desk.driver.resume(agent, at, approved=True).output == "paid:5:bank"
    head = desk.open().head(at.branch_id)[1]
    assert head.events == () and [each.event_id for each in head.decisions][-1] == sent.id
    assert desk.send(at, key="k").status == "fired"  # the same event, and the run has ended


def test_an_event_is_kept_that_arrives_while_the_body_runs(desk: Desk) -> None:
    def wait() -> Fired:
        if desk.entered == 1:
            [branch] = desk.open().branches()
            assert desk.open().send_event(branch.run_id, "payment", 5, by=BANK).status == "kept"
        return first()()

    assert desk.driver.invoke(desk.agent(wait), "go").output == "paid:5:bank"
    assert desk.entered == 2


def test_what_came_early_counts_no_more_if_its_sender_was_removed(desk: Desk) -> None:
    agent = desk.agent(first(), gate=True)
    people = StoreDirectory(desk.open())
    people.add(Person(id="till", kind="service", roles=("payments",), aliases=("hook:till",)))
    at = desk.asked(agent)
    assert desk.send(at, by=Principal(id="hook:till", roles=("payments",))).status == "kept"
    assert people.remove("till")
    at = desk.driver.resume(agent, at, approved=True).checkpoint
    assert set(by_name(at)) == {"paid", "late"} and [each.by.id for each in at.events] == ["hook:till"]


def test_what_came_early_fires_only_what_it_fits(desk: Desk) -> None:
    """One of a stranger, and one of another type, stay where they are; each event fires one trigger."""
    both = lambda: wait_for_all({"one": PAYMENT, "two": PAYMENT})  # noqa: E731
    agent = desk.agent(both, gate=True)
    at = desk.asked(agent)
    for payload, by in ((1, EVE), ("x", BANK), (2, BANK)):
        assert desk.send(at, payload, by=by).status == "kept"
    at = desk.driver.resume(agent, at, approved=True).checkpoint
    assert list(by_name(at)) == ["two"]
    assert [(each.by.id, each.content) for each in at.events] == [("eve", 1), ("bank", "x")]
    desk.send(at, 3)
    assert desk.carried_out(agent) == ["one:2:bank two:3:bank"]


def test_who_may_send(desk: Desk) -> None:
    """Fail closed: whom the trigger names, by id or by the role that the directory gives now; refusals are in the trail."""
    agent = desk.agent(lambda: wait_for_first({"paid": ExternalEvent("payment", senders=[BANK, "cashier"])}))
    at = desk.asked(agent)
    with pytest.raises(NotASender) as refused:
        desk.send(at, by=EVE)
    assert (refused.value.by, refused.value.pending_id) == ("eve", at.pending[0].id)
    StoreDirectory(desk.open()).add(Person(id="otto", roles=("clerk",)))
    with pytest.raises(NotASender):
        desk.send(at, by=Principal(id="otto", roles=("cashier",)))  # his word does not count: the directory knows him
    for nobody in ("", None, 5):
        with pytest.raises(InvalidDecision, match="by"):
            desk.send(at, by=nobody)
    assert kinds(desk.open(), at.run_id) == ["respond refused"] * 2
    assert len(desk.open().pending()) == 1
    desk.send(at, by=Principal(id="bank"))
    assert desk.carried_out(agent) == ["paid:5:bank"]


def test_what_cannot_be_sent_changes_nothing(desk: Desk) -> None:
    """Each error is typed, and says of which run or trigger it is."""
    agent = desk.agent(first())
    at = desk.asked(agent)
    before = desk.place.lines()
    with pytest.raises(CheckpointNotFound, match="knows no run"):
        desk.send("run_0")
    with pytest.raises(InvalidDecision, match="does not fit"):
        desk.send(at, "five")
    with pytest.raises(InvalidDecision, match="no JSON value"):
        desk.send(at, object())
    with pytest.raises(InvalidDecision, match="name of an event"):
        desk.send(at, name="")
    with pytest.raises(ConfigurationError, match="early"):
        desk.send(at, early="later")
    with pytest.raises(NotWaiting) as idle:
        desk.send(at, name="parcel", early="never")
    assert (idle.value.run_id, idle.value.event) == (at.run_id, "parcel")
    assert desk.place.lines() == before
    desk.send(at, key="k")
    with pytest.raises(InvalidDecision, match="same key"):
        desk.send(at, 6, key="k")
    with pytest.raises(TriggerFired) as fired:
        desk.send(at)
    assert fired.value.decision is not None and fired.value.decision.by == BANK
    assert desk.send(at, early="always").status == "kept"
    assert desk.carried_out(agent) == ["paid:5:bank"]
    with pytest.raises(NotWaiting, match="completed"):
        desk.send(at, early="always")


def test_a_run_keeps_so_many_events(desk: Desk) -> None:
    at = desk.asked(desk.agent(first(), gate=True))
    store = desk.open()
    most = {"eve": 50, "bank": 25, "mia": 12, "otto": 6, "rita": 3, "uma": 2, "vic": 1}
    for who, count in most.items():
        for number in range(count):
            store.send_event(at.run_id, "parcel", number, by=who)
        with pytest.raises(StoreError, match=f"{count} of them of {who}"):
            desk.send(at, name="parcel", by=who)
    with pytest.raises(StoreError, match="keeps 99 events that nothing waits for yet, 0 of them of zoe"):
        desk.send(at, name="parcel", by="zoe")


def test_the_events_that_a_run_keeps_are_bounded_together(desk: Desk) -> None:
    """They are in each checkpoint of the run, so nobody can make those too large to be read."""
    at = desk.asked(desk.agent(first(), gate=True))
    store = desk.open()
    with pytest.raises(StoreError, match="those of bank more than are left for others"):
        store.send_event(at.run_id, "a", "x" * 500_000, by=BANK)
    for name, who, size in (("a", EVE, 450_000), ("b", BANK, 250_000)):
        store.send_event(at.run_id, name, "x" * size, by=who)
        with pytest.raises(StoreError, match=f"those of {who.id} more than are left for others"):
            store.send_event(at.run_id, name, "x" * size, by=who)
    for large in ({"payload": "x" * 200_000}, {"key": "x" * 200_000}, {"name": "x" * 200_000}):
        with pytest.raises(StoreError, match="more than 1,000,000 characters"):
            desk.send(at, **{"name": "c", "by": "mia", **large})
    desk.send(at, name="c", by="mia")
    assert [each.event.name for each in store.head(at.run_id)[1].journal if isinstance(each, Arrived)] == [
        "a",
        "b",
        "c",
    ]


def test_of_many_who_send_at_once_one_fires(desk: Desk) -> None:
    agent = desk.agent(first())
    at = desk.asked(agent)
    gate, found = threading.Barrier(4), list[str]()

    def send(number: int) -> None:
        gate.wait(PATIENCE)
        try:
            desk.open().send_event(at.run_id, "payment", number, by=BANK)
            found.append(str(number))
        except CheckpointAlreadyResumed as error:
            found.append(type(error).__name__)

    threads = [threading.Thread(target=send, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert Counter(found)["TriggerFired"] == 3
    [winner] = [each for each in found if each.isdecimal()]
    assert desk.carried_out(agent) == [f"paid:{winner}:bank"]


# The end of another run


def test_the_end_of_another_run(desk: Desk) -> None:
    other = Agent[Any, str](
        name="other", model=ScriptedModel.by_turn([call("pay"), "bye"]), tools=[pay], store=desk.open()
    )
    waits = desk.asked(other)
    agent = desk.agent(lambda: wait_for_first({"done": RunEnd(waits.run_id), "late": Timer(after=60)}))
    at = desk.asked(agent)
    assert desk.carried_out(agent) == []
    assert desk.driver.resume(other, waits, approved=True).output == "bye"
    assert desk.carried_out(agent) == ["done:completed:None"]
    assert kinds(desk.open(), at.run_id) == ["supersede", "respond"]
    assert desk.driver.invoke(agent, "go").output == "done:completed:None"  # it has ended already


def test_a_run_that_is_not_there_has_ended(desk: Desk) -> None:
    """One that was deleted is never waited for without end; and no run waits for itself."""
    agent = desk.agent(lambda: wait_for_first({"done": RunEnd("run_0")}))
    assert desk.driver.invoke(agent, "go").output == "done:unknown:None"
    mine = desk.agent(lambda: wait_for_first({"done": RunEnd(desk.open().branches()[-1].run_id)}))
    assert "the end of the run that waits" in desk.driver.invoke(mine, "go").output
    forks: list[str] = []
    gated = desk.agent(lambda: wait_for_first({"done": RunEnd(forks[0])}), gate=True)
    fork = desk.driver.fork(gated, desk.asked(gated))
    forks.append(fork.branch_id)
    assert "the end of the run that waits" in desk.driver.resume(gated, fork, approved=True).output


@tool(requires_approval=True)
def pay() -> str:
    """Pay."""
    return "paid"


def test_runs_that_wait_for_runs_keep_no_request_from_its_turn(desk: Desk) -> None:
    """They are due at each look, and a look has a limit."""
    other = Agent[Any, str](
        name="other", model=ScriptedModel.by_turn([call("pay"), "bye"]), tools=[pay], store=desk.open()
    )
    waits = desk.asked(other)
    idle = desk.agent(lambda: wait_for_first({"done": RunEnd(waits.run_id)}))
    for _ in range(3):
        desk.asked(idle)
    agent = desk.agent(first())
    desk.asked(agent)
    desk.now += 60
    [done] = desk.driver.call(agent, "recover_all", limit=1)
    assert done.result is not None and done.result.output == "late:None:None"


# Wherever a body runs


def test_nodes_wait(desk: Desk) -> None:
    """Two nodes of a wave wait side by side, each for its own event and for a time."""

    def node(name: str) -> Callable[[Any], Any]:
        def body(state: Any) -> Any:
            event = ExternalEvent(name, senders=BANK)
            return {name: told(wait_for_first({name: event, "late": Timer(after=60)}))}

        return body

    graph = StateGraph(Said).add_node("a", node("a")).add_node("b", node("b"))
    works = graph.add_edge(START, "a").add_edge(START, "b").add_edge("a", END).add_edge("b", END)
    built = works.compile(store=desk.open(), name="works")
    at = desk.asked(built, {})
    assert len(at.pending) == 4
    desk.send(at, "x", name="b")
    assert desk.carried_out(built) == ["suspended"]
    desk.now += 60
    [output] = desk.carried_out(built)
    assert (output.a, output.b) == ("late:None:None", "b:x:bank")


def test_a_nested_run_waits(desk: Desk) -> None:
    """The event is sent to the outer run, early or not, and fires the trigger wherever it stands."""
    inner = desk.agent(first(), name="inner")
    outer = Agent[Any, str](
        name="outer",
        model=ScriptedModel.by_turn([call("inner", {"input": "go"}), lambda request: request.messages[-1].text]),
        tools=[inner.as_tool(description="Ships.")],
        store=desk.open(),
    )
    at = desk.asked(outer)
    assert [item.path for item in at.pending] == ["1.0", "1.0"]
    desk.send(at)
    assert desk.carried_out(outer) == ["paid:5:bank"]
    desk.asked(outer)
    desk.now += 60
    assert desk.carried_out(outer) == ["late:None:None"]


def test_a_fork_waits_anew(desk: Desk) -> None:
    agent = desk.agent(first())
    at = desk.asked(agent)
    desk.now += 30
    fork = desk.driver.call(agent, "fork", at)
    again = desk.driver.resume(agent, fork).checkpoint
    assert by_name(again)["late"].trigger.due_at == by_name(at)["late"].trigger.due_at + timedelta(seconds=30)
    desk.send(again.branch_id)
    assert desk.carried_out(agent) == ["paid:5:bank"]
    assert len(desk.open().pending(run_id=at.run_id)) == 2


def test_a_fork_has_no_event_that_arrived_early(desk: Desk) -> None:
    """An event fires one trigger, as an approval runs one branch: that of the branch that it was sent to."""
    agent = desk.agent(first(), gate=True)
    at = desk.asked(agent)
    sent = desk.send(at, key="k")
    stands = desk.driver.call(agent, "checkpoint", at.run_id, label="paid")
    assert [each.id for each in stands.events] == [sent.id]
    fork = desk.driver.call(agent, "fork", stands)
    again = desk.driver.resume(agent, fork, approved=True).checkpoint
    assert fork.events == () and "paid" in by_name(again)
    assert desk.driver.resume(agent, stands, approved=True).output == "paid:5:bank"
    assert desk.send(again.branch_id, 6, key="k").status == "fired"
    assert desk.carried_out(agent) == ["paid:6:bank"]


def test_several_waits_of_one_body(desk: Desk) -> None:
    """Each wait has its own triggers, and an event that came after the first is for the second if that is said."""

    def wait() -> dict[str, Fired]:
        return {str(number): first()() for number in range(2)}

    agent = desk.agent(wait)
    at = desk.asked(agent)
    desk.send(at, 1)
    with pytest.raises(TriggerFired):
        desk.send(at, 2)
    desk.send(at, 2, early="always")
    assert desk.carried_out(agent) == ["paid:1:bank paid:2:bank"]


FROZEN = Path(__file__).parent / "corpus" / "checkpoint-1-triggers.json"


def corpus_wait() -> Fired:
    """The wait in the frozen text."""
    return first(told=Question("Cancel?", answer=bool))()


def test_a_frozen_text_is_read_as_it_was_written_and_goes_on(desk: Desk) -> None:
    """A wait of this release, with an event that was kept before it and one that is in the journal."""
    text = FROZEN.read_text().rstrip()
    frozen = Checkpoint.model_validate_json(text)
    assert frozen.model_dump_json() == text
    assert [(each.name, each.content, each.by.id, each.key) for each in frozen.events] == [
        ("parcel", {"n": 1}, "bank", "k")
    ]
    assert [each.event.name for each in frozen.journal if isinstance(each, Arrived)] == ["parcel"]
    late = by_name(frozen)["late"].trigger
    assert (late.kind, late.wait_for, late.due_at - frozen.created_at) == ("time", "first", timedelta(seconds=60))
    desk.now = frozen.created_at.timestamp()
    agent = desk.agent(corpus_wait, gate=True)
    agent.store.save(frozen)
    desk.send(frozen)
    assert desk.carried_out(agent) == ["paid:5:bank"]
    assert len(desk.open().head(frozen.branch_id)[1].events) == 2


@pytest.mark.parametrize(
    "wrong",
    [
        Timer,
        lambda: Timer(after=1, at=datetime.now(UTC)),
        lambda: Timer(after=0),
        lambda: Timer(at=datetime(2026, 1, 1)),  # noqa: DTZ001
        *(lambda year=year: Timer(at=datetime(year, 1, 1, tzinfo=UTC)) for year in (1, 9999)),
        *(lambda id=id: RunEnd(id) for id in ("", "a\0", "\ud800", "x" * 2_000)),
        lambda: ExternalEvent("", senders="a"),
        lambda: ExternalEvent("a", senders=[]),
        lambda: ExternalEvent("a", senders=None),  # type: ignore[arg-type]
        lambda: ExternalEvent("a", senders=lambda who, item: True),
        lambda: wait_for_first({"late": Timer(after=1)}),
    ],
)
def test_what_nobody_can_wait_for(wrong: Callable[[], object]) -> None:
    with pytest.raises(ConfigurationError):
        wrong()


@pytest.mark.parametrize("wrong", [{}, {"": Timer(after=1)}, {"a": 5}, [Timer(after=1)], None])
def test_what_is_no_wait(wrong: Any) -> None:
    tools = [tool(lambda: wait_for_all(wrong) and "", name="ship", description="Ship.")]
    agent = Agent[Any, str](
        name="desk", model=ScriptedModel.by_turn([call("ship"), lambda request: request.messages[-1].text]), tools=tools
    )
    assert "wait_for_all()" in str(SYNC.invoke(agent, "go").output)


# Deaths


def waiting(scene: Scene) -> None:
    """A run that waits for an event and an answer, and then for a time or an event, from wherever it stands to its end."""

    @tool(idempotent=True)
    def ship() -> str:
        """Ship."""
        both = wait_for_all({"paid": PAYMENT, "told": Question("Who?")})
        late = wait_for_first({"late": Timer(after=7200), "parcel": ExternalEvent("parcel", senders=BANK)})
        return " ".join(map(told, [*both.values(), late]))

    # Whoever was killed may have turned the clock, so that its lease is over only then.
    ahead, clock = [7200.0 if scene.recovering else 0.0], scene.store.clock
    scene.store.clock = lambda: clock() + ahead[0]
    agent = Agent[Any, str](
        name="desk",
        model=ScriptedModel.by_turn([call("ship"), lambda request: request.messages[-1].text]),
        tools=[ship],
        store=scene.store,
    )
    if not scene.store.branches():
        agent.invoke("go")
    while scene.store.branches()[0].status not in ("completed", "cancelled"):
        agent.recover_all()
        [branch] = scene.store.branches()
        scene.store.send_event(branch.run_id, "payment", 5, by=BANK, key="k")
        for each in scene.store.pending():
            item = each.approval
            if item.trigger is not None and item.trigger.kind == "answer":
                scene.store.decide(item.id, Respond(content="ann"), by="ann", digest=item.digest)
        if any(each.approval.trigger and each.approval.trigger.kind == "time" for each in scene.store.pending()):
            ahead[0] += 7200


def fired_once(scene: Scene) -> None:
    """Each trigger has one decision, and the run has ended as one that nobody killed."""
    [branch] = scene.store.branches()
    assert scene.store.head(branch.id)[1].output == "paid:5:bank told:ann:ann late:None:None"
    assert sorted(each.kind for each in scene.store.audit()) == ["respond"] * 3 + ["supersede"]


@pytest.mark.usefixtures("fresh_fork_server")
@pytest.mark.unmeasured
def test_a_worker_killed_anywhere_fires_each_trigger_once(tmp_path: Path) -> None:
    """Q7: killed before and after each write of an event, an answer and a time; nothing is lost, and nothing fires twice."""
    store = f"sqlite:///{tmp_path}/runs.db?synchronous=normal"
    report = sweep(waiting, store=store, check=fired_once, every=scaled(7, sweep=1))
    assert report.broken == () and report.places >= 20
    assert report.kills >= scaled(3, sweep=report.places)


# At a terminal


def test_an_event_is_sent_at_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit status 0 for an event that fires or is kept, 1 for one that is refused, 2 for what is none."""
    url = f"sqlite:///{tmp_path}/runs.db?synchronous=off"
    with SQLiteStore(f"{tmp_path}/runs.db", synchronous="OFF") as store:
        ship = tool(name="ship", description="Ship.")(lambda: told(first()()))
        model = ScriptedModel.by_turn([call("ship"), lambda request: request.messages[-1].text])
        agent = Agent[Any, str](name="desk", model=model, tools=[ship], store=store)
        run_id = agent.invoke("go").run_id

        def send(*given: str) -> tuple[int, str, str]:
            status = command(["send", run_id, *given, "--store", url])
            said = capsys.readouterr()
            return status, " ".join(said.out.split()), said.err

        assert command(["pending", "--store", url]) == 0
        listed = capsys.readouterr().out
        assert "event payment" in listed and "time" in listed
        bank = ("--by", "bank", "--role", "payments")
        assert send("parcel", "--payload", '{"n": 1}')[:2] == (
            0,
            f"Run {run_id} keeps the event: nothing waits for it yet.",
        )
        status, _, complaint = send("payment", "--payload", "5", "--by", "eve")
        assert status == 1 and "names other senders" in complaint
        for wrong in (("--payload", "{"), ("--early", "soon"), ("--by", "")):
            assert send("payment", *wrong)[0] == 2
        status, said, _ = send("payment", "--payload", "5", *bank, "--key", "k", "--json")
        assert status == 0
        sent = json.loads(said)
        assert (sent["status"], sent["run_id"], sent["branch_id"]) == ("fired", run_id, run_id)
        assert json.loads(send("payment", "--payload", "5", *bank, "--key", "k", "--json")[1]) == sent
        status, _, complaint = send("payment", "--payload", "5", *bank)
        assert status == 1 and "answered by bank (cli)" in complaint
        assert agent.recover_all()[0].result.output == "paid:5:bank"  # type: ignore[union-attr]

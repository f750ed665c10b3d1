"""Votes are told wherever a request or a decision is: to streams, hooks, announcements, timelines, drawings, spans, and in diffs."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from drivers import DRIVERS, STORES, STREAMED, SYNC, Driver, open_kind
from request_laws import check_told
from spans import Desk, facts

from phronomy import (
    Agent,
    Announcements,
    Approval,
    Approve,
    Checkpoint,
    Event,
    Hooks,
    MemoryStore,
    Principal,
    Reject,
    tool,
)
from phronomy.drawing import tree_mermaid
from phronomy.events import RequestChanged, event_from, replay
from phronomy.observability.timeline import TimelineRecorder, timeline
from phronomy.people.directory import StoreDirectory
from phronomy.records.diff import diff
from phronomy.records.people import Person
from phronomy.stores.base import Store
from phronomy.stores.derived.kept_texts import whole_lineage
from phronomy.stores.derived.request_history import RequestHistory
from phronomy.stores.log.log import items_of
from phronomy.testing import ScriptedModel, call
from phronomy.tools.approvers import Escalate
from phronomy.wire import to_wire
from phronomy.workers import Worker

SECRET = "because of 4111-secret"


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return open_kind(request.param, tmp_path)


@pytest.fixture(params=(*DRIVERS, *STREAMED), ids=str)
def driver(request: pytest.FixtureRequest) -> Driver:
    found: Driver = request.param
    return found


def of_finance(id: str) -> Principal:
    return Principal(id=id, roles=("finance",))


ADA, BOB, EVE, ZOE = (of_finance(name) for name in ("ada", "bob", "eve", "zoe"))


def desk(store: Store, driver: Driver = SYNC, needed: int = 3, **options: Any) -> Agent[Any, Any]:
    def pay(card: str) -> str:
        """Pay."""
        return "paid"

    asks = Approval(by="finance", needed=needed, rejections=2)
    gated = tool(requires_approval=asks)(driver.function(pay))
    script = [[call("pay", {"card": "4111-secret"})], "Done."]
    return Agent(name="desk", model=ScriptedModel.by_turn(script), tools=[gated], store=store, **options)


class Heard(Hooks):
    """Notes the events that a hook is called with, and the votes among them."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.votes: list[str] = []

    def on_event(self, event: Event) -> None:
        self.events.append(event)

    def on_voted(self, event: Any) -> None:
        self.votes.append(f"{event.vote.kind} by {event.vote.by.id}, {[each.missing for each in event.levels]}")


class Posts(Announcements):
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
        return [
            event.what + (f" {event.vote.kind} by {event.vote.by.id}" if event.vote is not None else "")
            for event in self.events
        ]


def voted(driver: Driver, agent: Agent[Any, Any]) -> Checkpoint:
    """A run that asks three: one votes with the agent, one with the store alone, and a third decides with the agent."""
    waiting = driver.invoke(agent, "go").checkpoint
    (item,) = waiting.pending
    first = driver.resume(agent, waiting, decisions={item.id: Approve()}, by=ADA, channel="desk")
    assert first.status == "suspended"
    left = agent.store.decide(item.id, Approve(), by=BOB, digest=item.digest, channel="page")
    assert (left.status, len(left.approval.votes)) == ("pending", 2)
    head = agent.store.head(waiting.run_id)[1]
    done = driver.resume(agent, head, decisions={item.id: Approve()}, by=EVE)
    assert done.output == "Done."
    return done.checkpoint


def votes_in(events: Any) -> list[str]:
    return [
        f"{event.id} {event.vote.by.id} {event.vote.channel} {[each.missing for each in event.levels]}"
        for event in events
        if event.type == "voted"
    ]


# Events and hooks


def test_each_vote_is_an_event_once_and_the_last_one_is_the_decision(driver: Driver, store: Store) -> None:
    heard = Heard()
    end = voted(driver, desk(store, driver, hooks=[heard]))
    events = list(replay(store, end.run_id))
    assert [event.type for event in events] == [
        "run_started", "checkpoint", "model_replied", "approval_requested", "checkpoint", "suspended",
        "voted", "checkpoint", "suspended", "voted", "decided", "checkpoint", "tool_call_started", "tool_call_settled",
        "checkpoint", "model_replied", "checkpoint", "completed",
    ]  # fmt: skip
    assert votes_in(events) == ["3.0 ada desk [2]", "4.0 bob page [1]"]
    [decided] = [event for event in events if event.type == "decided"]
    assert [vote.by.id for vote in decided.decision.votes] == ["ada", "bob", "eve"]
    # Hooks are called in the process that drives: the vote with the store alone had none.
    assert heard.votes == ["approve by ada, [2]"]
    live = [event for event in heard.events if event.type != "model_started"]
    assert live == [event for event in events if event.id != "4.0"]


def test_an_event_of_a_vote_can_be_read_again_and_sent_without_its_arguments(store: Store) -> None:
    end = voted(SYNC, desk(store))
    first, _ = (event for event in replay(store, end.run_id) if event.type == "voted")
    assert event_from(first.model_dump_json()) == first
    sent: Any = to_wire(first)
    assert (sent["type"], sent["id"], sent["tool_name"], sent["vote"]["by"]["id"]) == ("voted", "3.0", "pay", "ada")
    assert sent["levels"] == [{"of": "", "counted": 1, "needed": 3, "rejected": 0, "rejections": 2, "missing": 2}]
    assert "4111-secret" not in str(sent)


def test_the_wire_has_the_approvers_the_votes_and_the_policy_of_a_request(store: Store) -> None:
    agent = desk(store)
    waiting = agent.invoke("go").checkpoint
    agent.resume(waiting, decisions={waiting.pending[0].id: Approve()}, by=ADA)
    sent: Any = to_wire(store.head(waiting.run_id)[1])
    (item,) = sent["pending"]
    assert item["approvers"][0]["roles"] == ["finance"] and item["approvers"][0]["needed"] == 3
    assert [vote["by"]["id"] for vote in item["votes"]] == ["ada"]
    assert item["policy"] == waiting.pending[0].policy is not None


def test_a_rejection_that_does_not_decide_is_a_vote_that_takes_nothing_from_those_before(store: Store) -> None:
    agent = desk(store)
    waiting = agent.invoke("go").checkpoint
    (item,) = waiting.pending
    for who, answer in ((ADA, Approve()), (BOB, Reject(reason=SECRET)), (EVE, Approve())):
        store.decide(item.id, answer, by=who, digest=item.digest)
    levels = [event.levels[0] for event in replay(store, waiting.run_id) if event.type == "voted"]
    assert [(each.missing, each.rejected) for each in levels] == [(2, 0), (2, 1), (1, 1)]


def test_what_another_process_votes_while_a_run_is_driven_has_the_place_that_it_has_in_the_log(
    driver: Driver, store: Store
) -> None:
    """One call runs here, and lets somebody vote on the other meanwhile, with the store alone."""
    posts = Posts()

    def look() -> str:
        """Look."""
        (row,) = [each for each in store.pending() if each.approval.tool_name == "pay"]
        store.decide(row.approval.id, Approve(), by=BOB, digest=row.approval.digest)
        return "seen"

    def pay(order: int) -> str:
        """Pay."""
        return "paid"

    tools = [
        tool(requires_approval=True)(driver.function(look)),
        tool(requires_approval=Approval(by="finance", needed=2))(driver.function(pay)),
    ]
    heard = Heard()
    script = [[call("look"), call("pay", {"order": 1})], "Done."]
    agent = Agent(
        name="desk",
        model=ScriptedModel.by_turn(script),
        tools=tools,
        store=store,
        hooks=[heard],
        announcements=[posts],
    )
    waiting = driver.invoke(agent, "go").checkpoint
    first, second = waiting.pending
    driver.resume(agent, waiting, decisions={first.id: Approve()}, by="rita")
    assert heard.votes == ["approve by bob, [1]"]
    stored = list(replay(store, waiting.run_id))
    # Told when this worker comes to know of it: after the call that ran meanwhile, and in order.
    votes = [[event.vote for event in events if event.type == "voted"] for events in (heard.events, stored)]
    assert votes[0] == votes[1]
    live = [(event.seq, event.part) for event in heard.events if event.type != "model_started"]
    assert live == sorted(set(live)) and len(live) == len(stored)
    assert [event.what for event in posts.events if event.request.id == second.id] == ["asked", "voted"]


def test_votes_on_what_a_nested_run_asks_are_told_once_around_it(driver: Driver, store: Store) -> None:
    posts, heard = Posts(), Heard()
    inner = desk(store, driver)
    script = [[call("pays", {"input": "go"})], "All done."]
    outer: Agent[Any, Any] = Agent(
        name="outer",
        model=ScriptedModel.by_turn(script),
        tools=[inner.as_tool("pays", "Pays.")],
        store=store,
        hooks=[heard],
        announcements=[posts],
    )
    waiting = driver.invoke(outer, "go").checkpoint
    (item,) = waiting.pending
    driver.resume(outer, waiting, decisions={item.id: Approve()}, by=ADA)
    for who in (BOB, EVE):
        store.decide(item.id, Approve(), by=who, digest=item.digest)
    (recovered,) = driver.call(outer, "recover_all")
    assert recovered.result.output == "All done."
    votes = [event for event in replay(store, waiting.run_id) if event.type == "voted"]
    assert [(each.vote.by.id, each.path, each.inside) for each in votes] == [
        ("ada", "", item.path),
        ("bob", "", item.path),
    ]
    assert heard.votes == ["approve by ada, [2]"]
    assert posts.told == ["asked", "voted approve by ada", "voted approve by bob", "decided", "carried_out"]
    assert [(each.path, each.agent) for each in timeline(store, waiting.run_id).query("voted")] == [
        (item.path, "desk"),
        (item.path, "desk"),
    ]
    check_told(store, posts.events)


def test_an_edit_is_a_decision_and_the_new_request_begins_with_its_vote(driver: Driver, store: Store) -> None:
    """Votes that a request has from its beginning are told with the decision on the old one, and not once more."""
    posts, heard = Posts(), Heard()
    agent = desk(store, driver, needed=2, hooks=[heard], announcements=[posts])
    waiting = driver.invoke(agent, "go").checkpoint
    (item,) = waiting.pending
    driver.resume(agent, waiting, decisions={item.id: Approve()}, by=ADA)
    head = store.head(waiting.run_id)[1]
    driver.resume(agent, head, decisions={item.id: Approve(args={"card": "another"})}, by=BOB)
    (row,) = store.pending()
    again = row.approval
    assert (again.id != item.id, [vote.by.id for vote in again.votes]) == (True, ["bob"])
    driver.resume(agent, store.head(waiting.run_id)[1], decisions={again.id: Approve()}, by=ADA)
    events = list(replay(store, waiting.run_id))
    assert [event.type for event in events if event.type in ("approval_requested", "voted", "decided")] == [
        "approval_requested", "voted", "decided", "approval_requested", "decided",
    ]  # fmt: skip
    assert heard.votes == ["approve by ada, [1]"]
    assert posts.told == ["asked", "voted approve by ada", "decided", "withdrawn", "asked", "decided", "carried_out"]


def test_a_vote_that_a_worker_checks_is_told_once(driver: Driver, store: Store) -> None:
    def trusted(who: Principal, request: Any) -> bool:
        return who.id in ("ada", "bob")

    def pay(order: int) -> str:
        """Pay."""
        return "paid"

    gated = tool(requires_approval=Approval(by=trusted, needed=2))(driver.function(pay))
    posts, heard = Posts(), Heard()
    script = [[call("pay", {"order": 1})], "Done."]
    agent: Agent[Any, Any] = Agent(
        name="desk",
        model=ScriptedModel.by_turn(script),
        tools=[gated],
        store=store,
        hooks=[heard],
        announcements=[posts],
    )
    (item,) = driver.invoke(agent, "go").checkpoint.pending
    store.decide(item.id, Approve(), by="ada", digest=item.digest)
    driver.call(agent, "recover_all")
    (row,) = store.pending()
    again = row.approval
    store.decide(again.id, Approve(), by="bob", digest=again.digest)
    driver.call(agent, "recover_all")
    assert list(store.pending()) == []
    told = [event.type for event in heard.events if event.type in ("approval_requested", "voted", "decided")]
    assert told == ["approval_requested", "decided", "approval_requested", "decided"]
    assert posts.told == ["asked", "decided", "withdrawn", "asked", "decided", "carried_out"]
    assert [event.request.id for event in posts.events] == [item.id] * 3 + [again.id] * 3


def test_a_worker_announces_votes_that_were_cast_with_the_store_alone() -> None:
    store, posts = MemoryStore(), Posts()
    agent = desk(store, announcements=[posts])
    (item,) = agent.invoke("go").checkpoint.pending
    store.decide(item.id, Approve(), by=ADA, digest=item.digest)
    asyncio.run(Worker(agent).once())
    assert posts.told == ["asked", "voted approve by ada"]


# Announcements


def test_each_vote_on_a_request_is_announced_once_in_order(driver: Driver, store: Store) -> None:
    posts = Posts()
    agent = desk(store, driver, announcements=[posts])
    voted(driver, agent)
    driver.call(agent, "recover_all")
    assert posts.told == ["asked", "voted approve by ada", "voted approve by bob", "decided", "carried_out"]
    assert [event.key.partition(":")[2] for event in posts.events] == [
        "asked", "voted:1", "voted:2", "decided", "carried_out",
    ]  # fmt: skip
    assert [[each.missing for each in event.levels] for event in posts.events] == [[], [2], [1], [], []]
    assert [len(event.request.votes) for event in posts.events] == [0, 1, 2, 2, 2]
    check_told(store, posts.events)
    assert all(event_from(event.model_dump_json()) == event for event in posts.events)


def test_a_vote_keeps_the_request_open_and_what_could_not_be_told_is_told_later(driver: Driver, store: Store) -> None:
    posts = Posts(faults=1)
    agent = desk(store, driver, announcements=[posts])
    waiting = driver.invoke(agent, "go").checkpoint
    (item,) = waiting.pending
    store.decide(item.id, Approve(), by=ADA, digest=item.digest)
    assert posts.told == []
    driver.call(agent, "recover_all")
    assert posts.told == ["asked", "voted approve by ada"]
    check_told(store, posts.events)


def test_votes_that_the_log_has_in_the_decision_alone_are_told_before_it(store: Store) -> None:
    """As in the journal of a run whose votes were left out of it."""
    end = voted(SYNC, desk(store))
    history = RequestHistory()
    told: list[str] = []
    for entry, item in items_of(whole_lineage(store, branch_id=end.run_id).entries):
        if isinstance(item, Checkpoint) and item.pending and item.pending[0].votes:
            continue
        if entry.seq != 4:
            told += [change.what for change in history.read(entry.path, item)]
    assert told == ["asked", "voted", "voted", "decided", "carried_out"]


# The timeline and the drawing


def test_the_timeline_has_each_vote_without_its_reason(driver: Driver, store: Store) -> None:
    recorder = TimelineRecorder(store=store)
    agent = desk(store, driver, hooks=[recorder])
    waiting = driver.invoke(agent, "go").checkpoint
    (item,) = waiting.pending
    driver.resume(agent, waiting, decisions={item.id: Reject(reason=SECRET)}, by=ADA, channel="desk")
    store.decide(item.id, Approve(), by=BOB, digest=item.digest)
    driver.resume(
        agent, store.head(waiting.run_id)[1], decisions={item.id: Reject(reason=SECRET)}, by=EVE, channel="desk"
    )
    found = timeline(store, waiting.run_id)
    votes = [*found.query("voted")]
    named = {"pending_id": item.id, "tool": "pay"}
    assert [entry.facts for entry in votes] == [
        {**named, "kind": "reject", "by": "ada", "channel": "desk", "missing": {"tool": 3}},
        {**named, "kind": "approve", "by": "bob", "missing": {"tool": 2}},
    ]
    assert all("secret" not in entry.model_dump_json() for entry in found)
    assert votes[1].at == [*store.audit(pending_id=item.id)][1].at
    kept = recorder.timeline(waiting.run_id)
    assert [(each.id, each.type, each.event, each.checkpoint_id, each.facts) for each in kept] == [
        (each.id, each.type, each.event, each.checkpoint_id, each.facts) for each in found
    ]


def test_the_drawing_of_a_run_says_who_voted_and_for_whom() -> None:
    store = MemoryStore()
    directory = StoreDirectory(store)
    for id in ("ada", "dora"):
        directory.add(Person(id=id, name=id.title(), roles=("finance",) if id == "ada" else ()))
    directory.name_deputy("ada", "dora", until=datetime.now(UTC) + timedelta(days=1))
    agent = desk(store)
    waiting = agent.invoke("go").checkpoint
    (item,) = waiting.pending
    agent.resume(waiting, decisions={item.id: Approve()}, by=EVE)
    store.decide(item.id, Reject(), by="dora", digest=item.digest)
    drawn = tree_mermaid(store, waiting.run_id)
    assert "vote: approve pay by eve" in drawn
    assert "vote: reject pay by Dora #40;dora#41; for Ada #40;ada#41;" in drawn
    *_, vote = timeline(store, waiting.run_id).query("voted")
    assert (vote.facts["by"], vote.facts["behalf_of"]) == ("dora", "ada")


# Spans


def test_a_vote_is_an_event_of_the_drive_with_ids_and_numbers_alone(driver: Driver) -> None:
    store, spans = MemoryStore(), Desk()
    agent = desk(store, driver, hooks=[spans.telemetry(content=True)])
    waiting = driver.invoke(agent, "go").checkpoint
    (item,) = waiting.pending
    driver.resume(agent, waiting, decisions={item.id: Reject(reason=SECRET)}, by=ADA)
    drives = spans.spans("invoke_agent")
    assert [event.name for event in drives[1].events] == ["phronomy.voted", "phronomy.suspended"]
    assert dict(drives[1].events[0].attributes or {}) == {
        "gen_ai.tool.name": "pay",
        "phronomy.pending.id": item.id,
        "phronomy.vote.kind": "reject",
        "phronomy.vote.missing": 3,
    }
    assert facts(drives[1])["phronomy.run.status"] == "suspended"
    assert "phronomy.approvals.decisions" not in spans.metrics()


# Diffs and dry runs


def test_a_diff_says_which_votes_were_added_without_saying_whose() -> None:
    store = MemoryStore()
    agent = desk(store, needed=2)
    before = agent.invoke("go").checkpoint
    (item,) = before.pending
    after = agent.resume(before, decisions={item.id: Reject(reason=SECRET)}, by=ADA).checkpoint
    found = diff(before, after)
    assert [(each.change, each.pending_id, each.vote.by.id) for each in found.votes] == [("added", item.id, "ada")]
    assert found.lines()[1:] == [
        "  call 1.0 (pay): pending -> pending",
        f"  pending {item.id} (pay) changed",
        f"  vote on {item.id} added: reject",
    ]
    assert "1 vote added" in str(found)
    assert [each.change for each in diff(after, before).votes] == ["removed"]
    end = agent.resume(after, decisions={item.id: Reject()}, by=BOB).checkpoint
    assert [each.vote.by.id for each in diff(after, end).votes] == ["bob"]
    assert [each.vote.by.id for each in diff(before, end).votes] == ["ada", "bob"]
    assert "secret" not in str(found.lines())


def test_a_dry_run_says_for_each_rule_who_would_have_to_approve(driver: Driver) -> None:
    def rich(shown: Any, context: Any) -> bool:
        return bool(shown["amount"] > 100)

    def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    lead = Approval(by=["legal", Principal(id="zoe")], escalate=[Escalate(after=60, by="board")])
    gated = tool(requires_approval=Approval(when=rich, by="finance", needed=2))(driver.function(pay))
    agent: Agent[Any, Any] = Agent(
        name="desk", model=ScriptedModel(["Hi"]), tools=[gated], approval_policy={"pay": lead, "*": True}
    )
    small, large = (driver.call(agent, "dry_run", "pay", {"amount": amount}) for amount in (1, 1000))
    assert (small.rules[0].says, small.rules[0].approvers) == ("run", None)
    of_tool, of_policy, of_all = large.rules
    assert (of_tool.approvers.roles, of_tool.approvers.needed) == (("finance",), 2)
    assert (of_policy.approvers.roles, of_policy.approvers.ids) == (("legal",), ("zoe",))
    assert [each.roles for each in of_policy.approvers.escalations] == [("board",)]
    assert (of_all.says, of_all.approvers) == ("ask", None)
    sent: Any = to_wire(large)
    assert sent["rules"][1]["approvers"]["ids"] == ["zoe"]
